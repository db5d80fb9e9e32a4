# The texts that `halyard demo` learns from: the project's own prose, and some of its own C. Few, so that a small
# model knows them well within a minute.
set(prose README.md CONTRIBUTING.md docs/architecture.md docs/semantics.md)
set(code src/core/stream.c src/core/event.c src/core/copy.c src/core/device.c src/core/log.c src/core/trace.c
    src/core/library.c include/halyard/stream.h)
list(TRANSFORM prose PREPEND ${CMAKE_SOURCE_DIR}/)
list(TRANSFORM code PREPEND ${CMAKE_SOURCE_DIR}/)
set(HALYARD_CORPUS ${CMAKE_BINARY_DIR}/generated/corpus)
file(MAKE_DIRECTORY ${HALYARD_CORPUS})
add_custom_command(OUTPUT ${HALYARD_CORPUS}/code.txt COMMAND cat ${code} > ${HALYARD_CORPUS}/code.txt
  DEPENDS ${code} VERBATIM)
add_custom_command(OUTPUT ${HALYARD_CORPUS}/prose.txt
  COMMAND awk -f ${CMAKE_SOURCE_DIR}/cmake/prose.awk ${prose} > ${HALYARD_CORPUS}/prose.txt
  DEPENDS ${prose} cmake/prose.awk VERBATIM)
set_source_files_properties(src/cli/corpus.c PROPERTIES
  OBJECT_DEPENDS "${HALYARD_CORPUS}/code.txt;${HALYARD_CORPUS}/prose.txt"
  COMPILE_DEFINITIONS "HALYARD_CORPUS=\"${HALYARD_CORPUS}\"")
