# The texts that `halyard demo` learns from: the project's own C, and its own prose. Few, so that a small model
# knows them well within a minute.
file(GLOB code CONFIGURE_DEPENDS src/core/*.c)
file(GLOB prose CONFIGURE_DEPENDS README.md CONTRIBUTING.md docs/*.md include/halyard/*.h src/*/*.h src/core/*.c
     src/model/*.c)
list(FILTER prose EXCLUDE REGEX "/(ops|performance)\\.md$")
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
