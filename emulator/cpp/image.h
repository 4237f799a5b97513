// The images that libnvrtc makes and libcuda loads: a line with the length and the emulator's digest, then a shared object. An image that
// stands for PTX has the object as hexadecimal text.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace emulator {

// EMULATOR_DIGEST is the digest of the emulator's sources.
inline std::string image_head(const char* kind) { return std::string("CUDA emulator ") + kind + " " EMULATOR_DIGEST " "; }

inline std::string make_image(const std::string& object) {
    return image_head("image") + std::to_string(object.size()) + "\n" + object;
}

inline std::string make_text(const std::string& object) {
    std::string text = "// " + image_head("text") + std::to_string(object.size()) + "\n";
    for (size_t i = 0; i < object.size(); i++) {
        char byte[3];
        snprintf(byte, sizeof byte, "%02x", (unsigned char)object[i]);
        text += byte;
        if (i % 60 == 59) text += '\n';
    }
    return text;
}

// Reads the shared object of an image or a text. If there is none, returns false and the reason in `why`.
inline bool read_image(const void* image, std::string& object, std::string& why) {
    const char* bytes = (const char*)image;
    std::string head = image_head("image"), text = "// " + image_head("text");
    bool is_text = strncmp(bytes, text.c_str(), text.size()) == 0;
    if (!is_text && strncmp(bytes, head.c_str(), head.size()) != 0) {
        why = "this is no image of this emulator";
        return false;
    }
    char* place;
    size_t size = strtoull(bytes + (is_text ? text.size() : head.size()), &place, 10);
    if (*place++ != '\n') {
        why = "the image is damaged";
        return false;
    }
    if (!is_text) {
        object.assign(place, size);
        return true;
    }
    auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    object.clear();
    while (*place && object.size() < size) {
        if (*place == '\n') {
            place++;
            continue;
        }
        int high = digit(place[0]), low = high < 0 ? -1 : digit(place[1]);
        if (low < 0) break;
        object += (char)(high << 4 | low);
        place += 2;
    }
    if (object.size() < size) why = "the image is damaged";
    return object.size() == size;
}

}  // namespace emulator
