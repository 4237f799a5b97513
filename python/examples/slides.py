"""One task a slide, on Dask and on Ray: each reads an image, filters it and writes it.

    python slides.py dask OUTPUT SLIDE.npy ...
"""

import argparse
from pathlib import Path

import numpy as np

import teatime


def blur(slide, output, sigma=2.0, device=None):
    """One slide (height, width, channels), its channels apart; gives the path that it wrote, which is there whole or not at all."""
    image = np.load(slide)
    found = teatime.gaussian_filter(image, sigma, axes=(0, 1), device=device)
    path = Path(output, Path(slide).name)
    unfinished = path.with_suffix(".part.npy")
    np.save(unfinished, found)
    unfinished.replace(path)
    return str(path)


def on_dask(slides, output, **options):
    from distributed import Client, progress

    # On a cluster of dask-cuda, each worker has a card; resources={"GPU": 1} lets each do one slide at a time.
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        tasks = client.map(blur, slides, output=output, **options)
        progress(tasks)
        return client.gather(tasks)


def on_ray(slides, output, **options):
    import ray

    ray.init(num_cpus=2, ignore_reinit_error=True, include_dashboard=False)
    # With num_gpus=1, Ray gives each task a card.
    task = ray.remote(num_cpus=1)(blur)
    return ray.get([task.remote(slide, output, **options) for slide in slides])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["dask", "ray"])
    parser.add_argument("output")
    parser.add_argument("slides", nargs="+")
    args = parser.parse_args()
    names = [Path(slide).name for slide in args.slides]
    if len(set(names)) < len(names):
        parser.error("two slides have one name, and would be written to one file")
    for path in {"dask": on_dask, "ray": on_ray}[args.engine](args.slides, args.output):
        print(path)
