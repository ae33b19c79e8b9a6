# The two commands a newcomer needs: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PREFIX ?= /usr/local
MODEL ?= qwen2.5-coder-0.5b
export JOBS ?= $(shell nproc)

.PHONY: help demo test test-all setup build install package bench format tidy clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-10s %s\n", $$1, $$2 }'

demo: build  ## set up, build, fetch the default model and talk to it
	@scripts/demo.sh $(MODEL)

test: build  ## set up, build and run the fast tests
	@scripts/test.sh fast

test-all:  ## every test: slow ones, ASan, TSan, debug, fuzzing, clang-tidy, the installed package
	@scripts/setup.sh --dev --tsan
	@scripts/test.sh all

setup:  ## install what is missing, nothing else
	@scripts/setup.sh

build: setup  ## the program at build/rhapsode
	@scripts/build.sh release

install: build  ## library, headers, program and CMake package into PREFIX
	@cmake --install build --prefix $(PREFIX)

package:  ## a relocatable tar.gz that chooses the CPU's instructions at run time
	@scripts/setup.sh --portable
	@scripts/package.sh

bench: build  ## single ops against the machine's measured peak
	@scripts/bench.sh

format:  ## rewrite every source with clang-format
	@scripts/check_format.sh --fix

tidy:  ## clang-tidy over the files that differ from main
	@scripts/setup.sh --dev
	@scripts/build.sh release
	@scripts/tidy.sh --changed

clean:  ## remove builds; keeps .venv, .deps and downloaded models
	rm -rf build build-*
