// A cuBLAS of plain loops, which run in the order of the emulator's streams.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "half.h"

// Functions of the emulator's libcuda.
extern "C" int emulator_enqueue(void* stream, const char* name, const char* operands, void (*run)(void*), void* data,
                                void (*drop)(void*));
extern "C" const char* emulator_named(const void* address);
extern "C" int cuCtxGetDevice(int* device);

namespace {

typedef int Status;
enum : Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Type : int { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum Compute : int { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, COMPUTE_64F = 70, COMPUTE_32F_FAST_TF32 = 77 };
// The value of CUBLAS_TF32_TENSOR_OP_MATH.
constexpr int TF32_MATH = 3;

struct Handle {
    void* stream = nullptr;
    int math = 0;
    int pointers = 0;
};

struct Gemm {
    bool transpose_a, transpose_b, tf32;
    size_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
    const void *a, *b;
    void* c;
    int a_type, b_type, c_type;
};

// Rounds to the nearest value whose last `drop` fraction bits are zero, ties to even.
float rounded(float value, int drop) {
    uint32_t bits = emulator_float_bits(value);
    if ((bits & 0x7f800000) == 0x7f800000) return value;
    bits += (1u << (drop - 1)) - 1 + (bits >> drop & 1);
    return emulator_bits_float(bits & ~((1u << drop) - 1));
}

double load(const void* array, int type, size_t i) {
    if (type == F64) return ((const double*)array)[i];
    if (type == F16) return emulator_half_float(((const uint16_t*)array)[i]);
    if (type == BF16) return emulator_bits_float((uint32_t)((const uint16_t*)array)[i] << 16);
    return ((const float*)array)[i];
}

void store(void* array, int type, size_t i, double value) {
    if (type == F64) ((double*)array)[i] = value;
    else if (type == F16) ((uint16_t*)array)[i] = (uint16_t)emulator_float_half((float)value);
    else if (type == BF16) ((uint16_t*)array)[i] = (uint16_t)(emulator_float_bits(rounded((float)value, 16)) >> 16);
    else ((float*)array)[i] = (float)value;
}

// Computes c = alpha op(a) op(b) + beta c, in column-major order. Sums along k are in f32, or in f64 for f64.
template <typename Real> void run(void* data) {
    const Gemm& of = *(const Gemm*)data;
    auto value = [&](const void* array, int type, size_t i) {
        Real exact = (Real)load(array, type, i);
        return of.tf32 ? (Real)rounded((float)exact, 13) : exact;
    };
    std::vector<Real> a(of.m * of.k), sums(of.m);
    for (size_t p = 0; p < of.k; p++) {
        for (size_t i = 0; i < of.m; i++) {
            a[p * of.m + i] = value(of.a, of.a_type, of.transpose_a ? i * of.lda + p : p * of.lda + i);
        }
    }
    for (size_t j = 0; j < of.n; j++) {
        sums.assign(of.m, 0);
        for (size_t p = 0; p < of.k; p++) {
            Real b = value(of.b, of.b_type, of.transpose_b ? p * of.ldb + j : j * of.ldb + p);
            for (size_t i = 0; i < of.m; i++) sums[i] += a[p * of.m + i] * b;
        }
        for (size_t i = 0; i < of.m; i++) {
            // If beta is 0, c is not read.
            Real before = of.beta == 0 ? 0 : (Real)(of.beta * load(of.c, of.c_type, j * of.ldc + i));
            store(of.c, of.c_type, j * of.ldc + i, (Real)of.alpha * sums[i] + before);
        }
    }
}

Status gemm(Handle* handle, std::unique_ptr<Gemm> of, int op_a, int op_b) {
    if (!handle) return NOT_INITIALIZED;
    size_t rows_a = op_a ? of->k : of->m, rows_b = op_b ? of->n : of->k;
    if (of->lda < rows_a || of->ldb < rows_b || of->ldc < of->m || (of->m | of->n | of->k) >> 31) return INVALID_VALUE;
    // Scalars on the device would be read only when the operation runs, so they are refused.
    if (handle->pointers != 0) return NOT_SUPPORTED;
    of->transpose_a = op_a != 0;
    of->transpose_b = op_b != 0;
    if (of->m == 0 || of->n == 0) return SUCCESS;
    // Each call overwrites the text of the previous call, so the three names are copied one by one.
    std::string operands = emulator_named(of->a);
    operands += std::string(" ") + emulator_named(of->b);
    operands += std::string(" ") + emulator_named(of->c);
    auto drop = [](void* data) { delete (Gemm*)data; };
    auto product = of->a_type == F64 ? run<double> : run<float>;
    int code = emulator_enqueue(handle->stream, "cublasGemmEx", operands.c_str(), product, of.release(), drop);
    return code ? EXECUTION_FAILED : SUCCESS;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) Status

API cublasCreate_v2(Handle** handle) {
    int device;
    if (cuCtxGetDevice(&device)) return NOT_INITIALIZED;
    *handle = new Handle;
    return SUCCESS;
}

API cublasDestroy_v2(Handle* handle) {
    delete handle;
    return SUCCESS;
}

API cublasSetStream_v2(Handle* handle, void* stream) {
    handle->stream = stream;
    return SUCCESS;
}

API cublasGetStream_v2(Handle* handle, void** stream) {
    *stream = handle->stream;
    return SUCCESS;
}

API cublasGetVersion_v2(Handle*, int* version) {
    *version = 130000;
    return SUCCESS;
}

// Returns the major, minor or patch number of the version.
API cublasGetProperty(int which, int* value) {
    if (which < 0 || which > 2) return INVALID_VALUE;
    *value = which == 0 ? 13 : 0;
    return SUCCESS;
}

API cublasSetMathMode(Handle* handle, int mode) {
    handle->math = mode;
    return SUCCESS;
}

API cublasGetMathMode(Handle* handle, int* mode) {
    *mode = handle->math;
    return SUCCESS;
}

API cublasSetPointerMode_v2(Handle* handle, int mode) {
    handle->pointers = mode;
    return SUCCESS;
}

API cublasGetPointerMode_v2(Handle* handle, int* mode) {
    *mode = handle->pointers;
    return SUCCESS;
}

API cublasSetWorkspace_v2(Handle*, void*, size_t) { return SUCCESS; }

API cublasGemmEx(Handle* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int a_type,
                 int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, int compute,
                 int) {
    bool tf32 = compute == COMPUTE_32F_FAST_TF32, wide = compute == COMPUTE_64F;
    if (compute != COMPUTE_32F && compute != COMPUTE_32F_PEDANTIC && !tf32 && !wide) return NOT_SUPPORTED;
    if (tf32 && a_type != F32) return NOT_SUPPORTED;
    auto known = [=](int type) { return wide ? type == F64 : type == F32 || type == F16 || type == BF16; };
    // Only the pairs of types that cuBLAS supports are accepted.
    if (!known(a_type) || a_type != b_type || !known(c_type) || (c_type != F32 && c_type != a_type)) return NOT_SUPPORTED;
    // Scalars have the type of the sums.
    auto scalar = [=](const void* at) { return wide ? *(const double*)at : *(const float*)at; };
    if (handle && handle->math == TF32_MATH && compute == COMPUTE_32F && a_type == F32) tf32 = true;
    return gemm(handle,
                std::unique_ptr<Gemm>(new Gemm{false, false, tf32, (size_t)m, (size_t)n, (size_t)k, (size_t)lda,
                                               (size_t)ldb, (size_t)ldc, scalar(alpha), scalar(beta), a, b, c, a_type, b_type,
                                               c_type}),
                op_a, op_b);
}

API cublasSgemm_v2(Handle* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a, int lda,
                   const float* b, int ldb, const float* beta, float* c, int ldc) {
    return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, F32, lda, b, F32, ldb, beta, c, F32, ldc, COMPUTE_32F, -1);
}

extern "C" __attribute__((visibility("default"))) const char* cublasGetStatusName(Status status) {
    switch (status) {
        case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

extern "C" __attribute__((visibility("default"))) const char* cublasGetStatusString(Status status) {
    return cublasGetStatusName(status);
}
