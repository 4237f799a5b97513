// An NVRTC that uses the host's compiler. It compiles a kernel to a shared object, with shim.h from this library's folder and with
// CUDA_EMULATOR defined.

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <memory>
#include <spawn.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "image.h"

extern char** environ;

namespace {

typedef int Result;
enum : Result { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, INTERNAL = 11 };

struct Program {
    std::string source, name, log, image, text;
    std::vector<std::pair<std::string, std::string>> headers;
    // True if the architecture is a real one, so that the result has a CUBIN.
    bool real = false;
};

// A temporary folder, which is deleted with its files.
struct Folder {
    std::string path;
    std::vector<std::string> files;

    Folder() {
        const char* parent = getenv("TMPDIR");
        path = std::string(parent && *parent ? parent : "/tmp") + "/cuda-emulator-nvrtc-XXXXXX";
        if (!mkdtemp(&path[0])) path.clear();
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        for (const std::string& file : files) unlink(file.c_str());
        if (!path.empty()) rmdir(path.c_str());
    }

    std::string file(const std::string& name) {
        files.push_back(path + "/" + name);
        return files.back();
    }
    void write(const std::string& name, const std::string& text) { std::ofstream(file(name), std::ios::binary) << text; }
};

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the folder of this library and shim.h.
std::string own_folder() {
    Dl_info info;
    if (!dladdr((void*)&own_folder, &info) || !info.dli_fname) return ".";
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

// Runs a command with its output in a file. Returns the exit status.
int run(std::vector<std::string>& command, const std::string& output) {
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(&word[0]);
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int failed = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return -1;
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<std::string> compiler() {
    const char* text = getenv("CXX");
    std::string line = text && *text ? text : "c++";
    std::vector<std::string> words;
    for (size_t start = 0; start < line.size();) {
        size_t end = line.find(' ', start);
        if (end == std::string::npos) end = line.size();
        if (end > start) words.push_back(line.substr(start, end - start));
        start = end + 1;
    }
    return words;
}

Result copy_out(const std::string& text, char* target) {
    memcpy(target, text.c_str(), text.size() + 1);
    return SUCCESS;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) Result

API nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(Result result) {
    switch (result) {
        case SUCCESS: return "NVRTC_SUCCESS";
        case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
        default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

API nvrtcGetNumSupportedArchs(int* count) {
    *count = 5;
    return SUCCESS;
}

API nvrtcGetSupportedArchs(int* archs) {
    const int supported[] = {80, 86, 90, 100, 120};
    memcpy(archs, supported, sizeof supported);
    return SUCCESS;
}

API nvrtcCreateProgram(Program** program, const char* source, const char* name, int headers, const char* const* texts,
                       const char* const* names) {
    if (!program || !source || headers < 0) return INVALID_INPUT;
    *program = new Program;
    (*program)->source = source;
    (*program)->name = name ? name : "default_program";
    for (int i = 0; i < headers; i++) (*program)->headers.push_back({names[i], texts[i]});
    return SUCCESS;
}

API nvrtcDestroyProgram(Program** program) {
    if (!program || !*program) return INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

// Options without a meaning on a host are ignored. Options that NVRTC would refuse are refused.
API nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    if (!program) return INVALID_PROGRAM;
    for (int i = 0; i < count; i++) {
        std::string option = options[i];
        if (option.empty() || option[0] != '-') {
            program->log = "nvrtc: error: unrecognized option " + option + " found";
            return INVALID_OPTION;
        }
        if (option.find("arch") != std::string::npos && option.find("=sm_") != std::string::npos) program->real = true;
    }
    Folder folder;
    if (folder.path.empty()) {
        program->log = "cannot make a folder for the compiler";
        return INTERNAL;
    }
    for (auto& [name, text] : program->headers) folder.write(name, text);
    folder.write("kernel.cpp", "#line 1 \"" + program->name + "\"\n" + program->source);
    std::string object = folder.file("kernel.so"), output = folder.file("log");
    std::vector<std::string> command = compiler();
    // Multiplications and additions are fused, as NVRTC does. A function of libcuda checks the alignment of each memory access. Casts of
    // pointers and overflow behave as with NVRTC, and no optimisation may hide a wrong index.
    for (const char* word : {"-x", "c++", "-std=c++17", "-O1", "-fexpensive-optimizations", "-w", "-fPIC", "-shared", "-DCUDA_EMULATOR",
                             "-ffp-contract=fast", "-fsanitize=alignment", "-fno-sanitize-recover=all", "-nodefaultlibs",
                             "-fno-strict-aliasing", "-fwrapv", "-fvisibility=hidden",
                             "-fno-aggressive-loop-optimizations", "-fno-exceptions", "-fno-stack-protector"}) {
        command.push_back(word);
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma")) command.push_back("-mfma");
    if (__builtin_cpu_supports("avx2")) command.push_back("-mavx2");
#endif
    for (const std::string& word : {"-I" + folder.path, std::string("-include"), own_folder() + "/shim.h", std::string("-o"), object,
                                    folder.path + "/kernel.cpp", std::string("-lm")}) {
        command.push_back(word);
    }
    int status = run(command, output);
    program->log = contents(output);
    if (status != 0) {
        if (status < 0 || status == 127) program->log += "cannot run the C++ compiler " + command[0];
        return COMPILATION;
    }
    std::string bytes = contents(object);
    program->image = emulator::make_image(bytes);
    program->text = emulator::make_text(bytes);
    return SUCCESS;
}

API nvrtcGetProgramLogSize(Program* program, size_t* size) {
    *size = program->log.size() + 1;
    return SUCCESS;
}

API nvrtcGetProgramLog(Program* program, char* log) { return copy_out(program->log, log); }

API nvrtcGetPTXSize(Program* program, size_t* size) {
    if (program->text.empty()) return INVALID_PROGRAM;
    *size = program->text.size() + 1;
    return SUCCESS;
}

API nvrtcGetPTX(Program* program, char* ptx) { return copy_out(program->text, ptx); }

API nvrtcGetCUBINSize(Program* program, size_t* size) {
    *size = program->real ? program->image.size() : 0;
    return SUCCESS;
}

API nvrtcGetCUBIN(Program* program, char* cubin) {
    if (!program->real) return INVALID_PROGRAM;
    memcpy(cubin, program->image.data(), program->image.size());
    return SUCCESS;
}
