# Read by CMake after llama.cpp's project(): Suture calls libllama alone, and its "common" library,
# which llama-cpp-python asks for, is half of the build.
set(LLAMA_BUILD_COMMON OFF)
