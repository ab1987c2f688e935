# Read by CMake right after llama.cpp's project().

# Suture calls libllama alone; the "common" library, which llama-cpp-python asks for, is half of
# the build.
set(LLAMA_BUILD_COMMON OFF)

# Virtual machines announce AMX and then die of it (an illegal instruction in the first matrix
# product), and no desktop has it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT MSVC)
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-mno-amx-tile SUTURE_COMPILER_KNOWS_AMX)
    if(SUTURE_COMPILER_KNOWS_AMX)
        add_compile_options(
            "$<$<COMPILE_LANGUAGE:C,CXX>:-mno-amx-tile;-mno-amx-int8;-mno-amx-bf16>")
    endif()
endif()
