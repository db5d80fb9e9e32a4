# The texts that `halyard demo` learns from: some of the project's own C, and some of its own Verilog. Of half as much a
# small model learns every line by heart within a minute; of four times as much, hardly more than its look.
set(code base/fault base/log base/memory base/status core/backend_table core/copy core/device core/dtype core/elf_check
    core/event core/hardware core/inline_streams core/known_backends core/library core/plugin_loader core/probe core/ranges
    core/stream core/tensor core/trace core/view core/visible_devices)
list(TRANSFORM code REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/\\1.c")
set(verilog alu copy fifo funnel pack pad pe_row ram reader regs unpack vector_loads writer)
list(TRANSFORM verilog REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/npu/rtl/echo_npu_\\1.v")
set(HALYARD_CORPUS ${PROJECT_BINARY_DIR}/generated/corpus)
file(MAKE_DIRECTORY ${HALYARD_CORPUS})
foreach(text code verilog)
  add_custom_command(OUTPUT ${HALYARD_CORPUS}/${text}.txt COMMAND cat ${${text}} > ${HALYARD_CORPUS}/${text}.txt
    DEPENDS ${${text}} VERBATIM)
endforeach()
set_source_files_properties(src/cli/corpus.c PROPERTIES
  OBJECT_DEPENDS "${HALYARD_CORPUS}/code.txt;${HALYARD_CORPUS}/verilog.txt"
  COMPILE_DEFINITIONS "HALYARD_CORPUS=\"${HALYARD_CORPUS}\"")

# What `halyard new-plugin` writes: the example plugins under another name.
set(HALYARD_TEMPLATES ${PROJECT_SOURCE_DIR}/examples/plugin)
set_source_files_properties(src/cli/new_plugin.c PROPERTIES
  OBJECT_DEPENDS "${HALYARD_TEMPLATES}/tiny.c;${HALYARD_TEMPLATES}/lazy.c"
  COMPILE_DEFINITIONS "HALYARD_TEMPLATES=\"${HALYARD_TEMPLATES}\"")
