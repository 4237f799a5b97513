"""GPU math for arrays bigger than memory: SVD, PCA, distances, Gaussian filters and packed bits.

The functions take NumPy arrays, or what NumPy makes one of, and give NumPy arrays; of arrays in the memory of a CUDA GPU, as CuPy's, most
of them give arrays there. They run on the fastest device there is, or on the
one that ``device`` names: ``"cpu"``, ``"cuda:0"``, or a name that :func:`devices` lists; the environment variable ``TEATIME_DEVICE``
names another default. They release the interpreter's lock.

========================  ====================================================================
:func:`svd`               singular values and vectors of a matrix, as :func:`numpy.linalg.svd`
:func:`truncated_svd`     the largest of them, as scikit-learn's ``randomized_svd``; also of an array in a file
:func:`pca`               principal components of observations
:func:`pairwise_distance` distances in 17 metrics, as scipy's ``cdist`` and ``pdist``; also of arrays in files
:func:`neighbors`         the nearest of each observation, as scikit-learn's ``NearestNeighbors``
:func:`radius_neighbors`  those within a radius of each observation
:func:`gaussian_filter`   as :func:`scipy.ndimage.gaussian_filter`; :func:`gaussian_laplace`, :func:`gaussian_gradient_magnitude`
:func:`denoise_tv_chambolle` as :func:`skimage.restoration.denoise_tv_chambolle`
:func:`write_gaussian_filter` and :func:`write_denoise_tv_chambolle`, from the file of one array to that of another
:func:`map_overlap`       a function of your own on an array that need not fit memory, as dask's
:class:`Timeline`         what a computation waits for, as a page, also of dask's workers
:func:`pack`              values of 1, 2 and 4 bits in bytes, and :func:`unpack`
:mod:`teatime.genotype`   PCA, relationship matrices and distances of genotypes
:mod:`teatime.dask`       the same on dask arrays and Zarr stores, on a cluster
:mod:`teatime.blocks`     singular vectors in rounds, for other engines
:mod:`teatime.sklearn`    estimators for scikit-learn
:mod:`teatime.xarray`     an accessor of datasets of genotypes
:mod:`teatime.sgkit`      sgkit on top of teatime
========================  ====================================================================
"""

from ._adapter import adapter, sync
from ._bits import pack, unpack
from ._cuda import CudaArray, to_cuda
from ._device import Device, devices
from ._distance import Neighbors, RadiusNeighbors, neighbors, pairwise_distance, radius_neighbors
from ._filter import (
    denoise_tv_chambolle, gaussian_filter, gaussian_gradient_magnitude, gaussian_laplace, write_denoise_tv_chambolle, write_gaussian_filter,
)
from ._linalg import PCA, SVD, pca, svd, truncated_svd
from ._overlap import Mapped, map_overlap
from ._teatime import __version__
from ._timeline import Timeline
from .genotype import grm

__all__ = [
    "PCA", "SVD", "CudaArray", "Device", "Mapped", "Neighbors", "RadiusNeighbors", "Timeline", "__version__", "adapter", "devices",
    "denoise_tv_chambolle", "gaussian_filter", "gaussian_gradient_magnitude", "gaussian_laplace", "grm", "map_overlap", "neighbors",
    "pack", "pairwise_distance", "pca", "radius_neighbors", "svd", "sync", "to_cuda", "truncated_svd", "unpack",
    "write_denoise_tv_chambolle", "write_gaussian_filter",
]
