#!/usr/bin/env python3
"""Makes the benchmark's genotypes: an msprime simulation of four populations, written as VCF-Zarr by
bio2zarr (`big.vcz`), as PLINK (`big.bed`, `.bim`, `.fam`) and as a population table (`big.pops.tsv`).

    python make_store.py --out DIR
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

import msprime
import numpy as np

POPULATIONS = ["A", "B", "C", "D"]


def simulate(samples, length, seed):
    """((A,B),(C,D)) with weak migration: three components of structure, then a flat spectrum."""
    model = msprime.Demography()
    for name in POPULATIONS + ["AB", "CD", "ROOT"]:
        model.add_population(name=name, initial_size=10_000)
    for a, b in [("A", "B"), ("C", "D"), ("B", "C")]:
        model.set_symmetric_migration_rate([a, b], 2e-5)
    model.add_population_split(time=800, derived=["A", "B"], ancestral="AB")
    model.add_population_split(time=1200, derived=["C", "D"], ancestral="CD")
    model.add_population_split(time=2500, derived=["AB", "CD"], ancestral="ROOT")
    each = [samples // 4 + (i < samples % 4) for i in range(4)]
    trees = msprime.sim_ancestry(
        samples=dict(zip(POPULATIONS, each)),
        demography=model,
        sequence_length=length,
        recombination_rate=1e-8,
        random_seed=seed,
    )
    # Variants have two alleles, since PLINK's .bed has no room for a third.
    two = msprime.MatrixMutationModel(["A", "T"], [1, 0], [[0, 1], [1, 0]])
    return msprime.sim_mutations(trees, rate=1e-8, model=two, random_seed=seed + 1)


def write_plink(trees, prefix, block=1000):
    """PLINK .bed, variant-major, A1 = ALT: 2 copies = 0b00, 1 = 0b10, 0 = 0b11 (0b01 is missing)."""
    codes = np.array([0b11, 0b10, 0b00], dtype=np.uint8)
    samples = trees.num_individuals
    nodes = np.array([i.nodes for i in trees.individuals()])
    used = np.zeros(trees.num_sites, dtype=bool)
    with open(f"{prefix}.bed", "wb") as bed, open(f"{prefix}.bim", "w") as bim:
        bed.write(b"\x6c\x1b\x01")
        for v in trees.variants():
            alt = (v.genotypes == 1)[nodes].sum(1)
            used[v.site.id] = 0 < alt.sum() < 2 * samples
            padded = np.zeros(-(-samples // 4) * 4, dtype=np.uint8)
            padded[:samples] = codes[alt]
            quads = padded.reshape(-1, 4)
            bed.write((quads[:, 0] | quads[:, 1] << 2 | quads[:, 2] << 4 | quads[:, 3] << 6).tobytes())
            ref, *rest = v.alleles
            bim.write(f"1\tv{v.site.id}\t0\t{int(v.site.position)}\t{rest[0] if rest else '.'}\t{ref}\n")
    with open(f"{prefix}.fam", "w") as fam, open(f"{prefix}.pops.tsv", "w") as pops:
        pops.write("sample_id\tpopulation\n")
        for i in trees.individuals():
            fam.write(f"0\ttsk_{i.id}\t0\t0\t0\t-9\n")
            name = trees.population(trees.node(i.nodes[0]).population).metadata["name"]
            pops.write(f"tsk_{i.id}\t{name}\n")
    return int(used.sum())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True, type=pathlib.Path)
    p.add_argument("--name", default="big")
    p.add_argument("--samples", type=int, default=1000)
    p.add_argument("--length", type=float, default=24e6, help="base pairs; 24e6 gives about 165,000 sites")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--zarr-format", default="2", choices=["2", "3"])
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    prefix = a.out / a.name

    trees = simulate(a.samples, a.length, a.seed)
    print(f"{trees.num_sites} sites, {trees.num_individuals} samples, {trees.num_trees} trees", flush=True)
    trees.dump(f"{prefix}.trees")
    shutil.rmtree(f"{prefix}.vcz", ignore_errors=True)
    convert = [sys.executable, "-m", "bio2zarr", "tskit2zarr", "convert", "-Q", "--zarr-format", a.zarr_format]
    subprocess.run([*convert, f"{prefix}.trees", f"{prefix}.vcz"], check=True)
    used = write_plink(trees, prefix)
    print(f"{prefix}.vcz and .bed: {used} polymorphic variants")


if __name__ == "__main__":
    main()
