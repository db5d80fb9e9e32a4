# The texts that `halyard demo` learns from: the project's own C, and its own prose.
file(GLOB code CONFIGURE_DEPENDS src/core/*.c src/model/*.c)
file(GLOB_RECURSE prose CONFIGURE_DEPENDS README.md CONTRIBUTING.md docs/*.md npu/README.md npu/docs/*.md)
list(FILTER prose EXCLUDE REGEX "/ops.md$")
set(HALYARD_CORPUS ${CMAKE_BINARY_DIR}/generated/corpus)
file(MAKE_DIRECTORY ${HALYARD_CORPUS})
foreach(kind code prose)
  add_custom_command(OUTPUT ${HALYARD_CORPUS}/${kind}.txt
    COMMAND cat ${${kind}} > ${HALYARD_CORPUS}/${kind}.txt
    DEPENDS ${${kind}} COMMENT "Gathering ${kind} for the demo" VERBATIM)
endforeach()
set_source_files_properties(src/cli/corpus.c PROPERTIES
  OBJECT_DEPENDS "${HALYARD_CORPUS}/code.txt;${HALYARD_CORPUS}/prose.txt"
  COMPILE_DEFINITIONS "HALYARD_CORPUS=\"${HALYARD_CORPUS}\"")
