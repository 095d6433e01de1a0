# The commands of Lockstep. `make demo` and `make test` do all their set-up on a fresh Debian 12.
#
#   make demo                trains a CNN on Fashion-MNIST with two replicas
#   make test                builds and runs all tests
#   make test-python         TensorBoard and a browser read what training wrote (needs PyPI)
#   make pictures            docs/pictures/ anew: TensorBoard, the report, the progress bar (needs PyPI)
#   make faults              20 rounds of every fault that a job of several workers must survive or report (FAULTS=...)
#   make build lint asan tsan fuzz bench install
#   make ... LIBTORCH=PREFIX the same on another LibTorch (a folder with share/cmake/Torch, e.g. site-packages/torch)

LIBTORCH ?=
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
PEERS ?=
FAULTS ?=
FUZZ_SECONDS ?= 60

ifeq ($(LIBTORCH),)
BUILD := build
SETUP := scripts/setup.sh
CONFIGURE :=
else
BUILD := build-$(shell sed -n 's/.*PACKAGE_VERSION "\([^"+]*\).*/\1/p' $(LIBTORCH)/share/cmake/Torch/TorchConfigVersion.cmake)
SETUP := scripts/setup.sh wheel
CONFIGURE := -DCMAKE_PREFIX_PATH=$(LIBTORCH)
endif

.PHONY: demo test test-python pictures faults build lint asan tsan fuzz bench install setup setup-tests clean
.DEFAULT_GOAL := build

setup:
	@$(SETUP)

build: setup
	@scripts/build.sh $(BUILD) $(JOBS) $(CONFIGURE)

demo: setup
	@scripts/build.sh $(BUILD) $(JOBS) $(CONFIGURE) --target fashion_mnist --target lockstep_command
	@$(BUILD)/bin/fashion_mnist --out $(BUILD)/demo
	@$(BUILD)/bin/lockstep report $(BUILD)/demo/logs

setup-tests:
	@scripts/setup.sh tests

test: setup-tests build
	@python3 scripts/run_tests.py $(BUILD)

# Other people's programs read our files: TensorBoard, PyTorch, safetensors, a browser. Needs PyPI.
test-python: setup
	@scripts/build.sh $(BUILD) $(JOBS) $(CONFIGURE) --target observe --target lockstep_command --target weights_exchange
	@scripts/test_python.sh $(BUILD)

# What README.md and docs/ show: trains for half a minute, and takes pictures. Needs PyPI.
pictures: setup
	@scripts/build.sh $(BUILD) $(JOBS) $(CONFIGURE) --target fit --target fashion_mnist --target observe --target lockstep_command
	@scripts/make_pictures.sh $(BUILD)

# FAULTS: more arguments, such as --only=kill --rounds=5.
faults: setup-tests build
	@python3 tests/faults/run.py --build $(BUILD) $(FAULTS)

lint: setup
	@python3 tools/lint.py
	@python3 tools/check_docs.py

# Sanitizer builds have their own folders and leave out what they cannot run usefully.
asan: setup
	@scripts/build.sh $(BUILD)-asan $(JOBS) $(CONFIGURE) -DLOCKSTEP_SANITIZE=address -DLOCKSTEP_BENCH=OFF -DLOCKSTEP_EXAMPLES=OFF
	@python3 scripts/run_tests.py $(BUILD)-asan --label unit

tsan: setup
	@scripts/build.sh $(BUILD)-tsan $(JOBS) $(CONFIGURE) -DLOCKSTEP_SANITIZE=thread -DLOCKSTEP_BENCH=OFF -DLOCKSTEP_EXAMPLES=OFF
	@python3 scripts/run_tests.py $(BUILD)-tsan --label unit

# Readers of text from outside, fed with what no one would write. FUZZ_SECONDS for each.
fuzz:
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(BUILD)-fuzz $(FUZZ_SECONDS)

bench: build
	@python3 bench/run.py --build $(BUILD) $(if $(PEERS),--peers $(PEERS))

install: setup
	@scripts/build.sh $(BUILD) $(JOBS) $(CONFIGURE) --target lockstep/all --target tools/all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf build build-*
