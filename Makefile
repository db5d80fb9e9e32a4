# Two commands do everything on a fresh Debian machine: `make run` and `make test`.
# Both install what is missing and say what it is; nothing that is there is installed again.

BUILD := build/release
PYTHON := .venv/bin/python
CTEST := ctest --output-on-failure -j $(shell nproc)

.PHONY: torch-device npu all run check test test-unit test-asan test-tsan test-torch test-torch-device test-torch-tsan test-opinfo test-vllm wheel test-install test-arm64 test-npu test-gpu test-lies test-nightly fuzz coverage lint format bench docs picture clean setup setup-test

# The unit tests need cmocka, which building and running do not.
TESTS := OFF
test test-unit test-install test-arm64 test-torch test-torch-device test-torch-tsan test-opinfo test-npu test-lies test-nightly: TESTS := ON

all: setup
	cmake --preset release -DHALYARD_BUILD_TESTS=$(TESTS)
	cmake --build --preset release

run: all
	$(BUILD)/bin/halyard info
	$(BUILD)/bin/halyard verify --quick
	$(BUILD)/bin/halyard demo --out build/demo

test: setup-test lint all test-unit test-asan test-tsan test-install test-arm64 test-torch test-torch-device test-torch-tsan test-npu
	@echo "make test: everything passed"

# The inner loop, minutes instead of an hour: format, clang-tidy of what changed, release build, its tests.
check:
	@scripts/setup.sh check
	scripts/lint.sh changed
	cmake --preset release
	cmake --build --preset release
	cd $(BUILD) && $(CTEST) -LE slow
	@echo "make check: passed. Left out, and part of make test: clang-tidy of unchanged files, ctest's label slow,"
	@echo "  sanitizers, the installed library, ARM, PyTorch, the NPU's own tests."

setup:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test

test-unit: setup-test all
	cd $(BUILD) && $(CTEST)
	$(BUILD)/bin/halyard ops --markdown | diff - docs/ops.md || { echo "docs/ops.md is old: make docs"; exit 1; }

# GCC 13 puts vectors of 64 bytes at odd places of the stack that finds uses after return.
test-asan: setup-test
	cmake --preset asan
	cmake --build --preset asan
	cd build/asan && ASAN_OPTIONS=detect_stack_use_after_return=0 $(CTEST)

test-tsan: setup-test
	cmake --preset tsan
	cmake --build --preset tsan
	cd build/tsan && $(CTEST)

# The installed library, used from outside: CMake package, pkg-config, the example plugin.
test-install: setup-test all
	tests/integration/install.sh $(BUILD)

# For 64-bit ARM, under QEMU: the NEON kernels.
test-arm64: setup-test all
	tests/integration/arm64.sh $(BUILD)/bin/halyard build/arm64

# What needs a GPU, in less than ten minutes. It has no place in `make test`: most machines have none.
test-gpu: all
	scripts/test_gpu.sh $(BUILD)

test-torch: setup-test all
	$(PYTHON) -m pytest -q tests/torch

# The PyTorch device, installed in .venv as a user installs it, but over the library of the build above.
torch-device: setup-test all
	HALYARD_LIBRARY=$(CURDIR)/$(BUILD)/lib/libhalyard.so HALYARD_TORCH_BUILD=$(CURDIR)/build/torch \
	  $(PYTHON) -m pip install -q --no-build-isolation --no-deps ./torch
	HALYARD_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) -m pip install -q --no-build-isolation --no-deps ./python ./torch/npu

test-torch-device: torch-device
	$(PYTHON) -m pytest -q tests/torch_device

# 8 threads with streams and the allocator, over a libhalyard with ThreadSanitizer.
test-torch-tsan: torch-device
	cmake --preset tsan
	cmake --build --preset tsan --target halyard halyard_guarded
	tests/torch_device/tsan.sh $(CURDIR)/$(PYTHON) build/torch/libtorch_halyard.so build/tsan

# All of PyTorch's op_db on npu, against the cpu.
test-opinfo: torch-device
	$(PYTHON) tests/torch_device/opinfo.py --json build/opinfo.json

# vLLM's server on npu. It takes an environment with vLLM, which is large: docs/pytorch.md says how to make one.
test-vllm:
	$(PYTHON) -m pytest -q -rs tests/vllm

# Wheels: torch_halyard for the torch in .venv and halyard, each with libhalyard inside, and the module torch_npu.
wheel: setup-test
	$(PYTHON) -m pip wheel -q --no-build-isolation --no-deps -w build/wheel/dist ./python ./torch ./torch/npu
	@ls build/wheel/dist

npu: setup-test
	cmake -S npu -B build/npu -G Ninja -DECHO_NPU_WERROR=ON
	cmake --build build/npu

# The ECHO NPU stands alone: its own build, its functional model, and its Verilog under Verilator. Then whole models
# on both.
test-npu: setup-test all npu
	cd build/npu && $(CTEST)
	tests/integration/npu.sh $(BUILD)/bin/halyard build/npu/rtlmodel/libecho_rtlmodel.so

# Mutation testing of `halyard verify`: every lie of the table, on three seeds, in every mode. `make test` tells those of one.
test-lies: setup-test all
	for seed in 1 2 3; do for mode in values determinism gradients; do \
	  $(BUILD)/bin/test_lies --seed $$seed --mode $$mode || exit 1; done; done

# What takes too long for every change: true model sizes (8 GB of memory, 2 GB of disk), and
# the NPU's long comparisons.
test-nightly: setup-test all npu
	$(PYTHON) -m pytest -q -s tests/nightly
	tests/integration/npu_nightly.sh $(BUILD)/bin/halyard build/npu

# Every parser of foreign files under clang's fuzzer, one after the other, for FUZZ_SECONDS each.
FUZZ_SECONDS := 1200
fuzz: setup-test
	scripts/setup.sh fuzz
	scripts/fuzz.sh $(FUZZ_SECONDS)

# How much of src/ the C tests run, by folder. Tests that build the project again add nothing.
coverage: setup-test
	cmake --preset coverage
	cmake --build --preset coverage
	find build/coverage -name '*.gcda' -delete
	cd build/coverage && $(CTEST) -E '^(options|tutorial|leave_one_out|layers.*)$$'
	scripts/coverage.py build/coverage --at-least 80

lint: setup-test
	scripts/lint.sh

format: setup-test
	git ls-files '*.c' '*.h' | xargs clang-format-14 -i

bench: all
	$(BUILD)/bin/halyard bench all

# What is written by programs: the table of ops, the figures. The picture takes a minute and a quiet machine.
docs: all
	$(BUILD)/bin/halyard ops --markdown > docs/ops.md
	scripts/figures.py

picture: all
	scripts/terminal_svg.py docs/images/demo.svg --until 'Asked for Verilog' -- halyard demo

clean:
	rm -rf build
