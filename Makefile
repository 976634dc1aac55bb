# A thin front over CMakePresets.json. Each target first installs what it needs and the machine lacks (tools/setup).
PREFIX ?= /usr/local
# Seconds that each fuzzer runs in `make check`.
FUZZ_SECONDS ?= 15

sources = git ls-files -co --exclude-standard -- '*.c' '*.cpp' '*.h' '*.hpp'
stage = @printf '\n== %s  %s\n' "$$(date +%T)" '$(1)'
build = cmake --preset $(1) && cmake --build --preset $(or $(2),$(1))

.PHONY: help build test demo check install format clean \
	check-format check-asan check-fuzz check-tidy check-tsan check-aarch64 check-kernels check-python check-wheel check-wheel-aarch64 \
	package check-package docs check-docs \
	setup-check

help:
	@echo 'make build    build/flashtile and the shared library build/libflashtile.so'
	@echo 'make demo     a sentence encoder, attend on its first layer, a bench of a minute (demo-results/)'
	@echo 'make test     the whole suite, release build'
	@echo 'make check    clang with sanitizers, fuzzers, clang-tidy, clang-format, AArch64, CUDA kernels, the Python package, Debian packages; also one by one: make check-... (check-wheel, check-wheel-aarch64 by themselves)'
	@echo 'make install  into PREFIX (now $(PREFIX))'
	@echo 'make package  Debian packages in build-package/packages; make check-package tries them in a clean system'
	@echo 'make docs     the reference, build/docs/index.html'
	@echo 'make format   clang-format on every source'
	@echo 'make clean    remove all build folders and demo-results (the virtual environment .venv stays)'

build:
	@tools/setup build
	$(call build,release,product)

test:
	@tools/setup build test
	$(call stage,release build)
	$(call build,release)
	$(call stage,test suite)
	ctest --preset release

demo:
	@tools/setup build demo
	$(call build,release,product)
	tools/demo

install: build
	cmake --install build --prefix $(PREFIX)

check: check-format check-docs check-package check-kernels check-python check-asan check-fuzz check-tidy check-tsan check-aarch64
	$(call stage,check is through)

setup-check:
	@tools/setup build check

check-format: setup-check
	$(call stage,clang-format)
	$(sources) | xargs clang-format-14 --dry-run -Werror
	$(call stage,generated wgmma files)
	tools/write_wgmma --check

# Needs NVIDIA's run-time compiler (a Python package) and no GPU.
check-kernels: setup-check
	$(call stage,CUDA kernels for every architecture)
	cmake --preset release && cmake --build --preset release --target flashtile_compile_variants flashtile_compile_baselines
	VIRTUAL_ENV=$(CURDIR)/.venv build/flashtile_compile_variants tests/cuda/variants/explained.txt
	VIRTUAL_ENV=$(CURDIR)/.venv build/flashtile_compile_baselines

# On the CPU; tools/gpu-check runs the same on a GPU. Small models' threads would spin for each other on a busy machine.
check-python:
	@tools/setup build python
	$(call stage,library for the Python package)
	cmake --preset release && cmake --build --preset release --target flashtile flashtile_cli flashtile_jax
	$(call stage,tests of the Python package)
	OMP_WAIT_POLICY=passive FLASHTILE_LIBRARY=$(CURDIR)/build/libflashtile.so PYTHONPATH=python \
		$${FLASHTILE_PYTHON:-.venv/bin/python} -m pytest -q -n 2 --dist loadfile python/tests

check-wheel:
	@tools/setup build python wheel
	$(call stage,the Python wheel)
	tools/wheel build/dist

check-wheel-aarch64: build setup-check
	@tools/setup python wheel
	$(call stage,the Python wheel for AArch64)
	tools/wheel build/dist aarch64

package:
	@tools/setup build package
	$(call stage,Debian packages)
	$(call build,package)
	cd build-package && cpack
	@# The project has no mail address of its own, which two of lintian's tags are about.
	lintian --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog build-package/packages/*.deb

check-package: package
	$(call stage,the packages in a clean system)
	tools/check_packages build-package/packages

# One site: the documents, and every public call. Fails where a symbol has no description, or a link is dead.
docs:
	@tools/setup docs
	$(call stage,reference)
	NO_MKDOCS_2_WARNING=1 .venv/bin/python tools/write_reference build/docs

check-docs: docs

check-asan: setup-check
	$(call stage,clang with address and undefined-behaviour sanitizers)
	$(call build,asan)
	ctest --preset asan

check-fuzz: setup-check
	$(call stage,fuzzers)
	$(call build,asan)
	tools/fuzz build-asan $(FUZZ_SECONDS)

# Reads the compile commands of the clang build.
check-tidy: setup-check
	$(call stage,clang-tidy)
	$(call build,asan)
	tools/tidy build-asan

check-tsan: setup-check
	$(call stage,thread sanitizer)
	$(call build,tsan)
	ctest --preset tsan

check-aarch64: setup-check
	$(call stage,AArch64 under qemu)
	$(call build,aarch64)
	ctest --preset aarch64

format: setup-check
	$(sources) | xargs clang-format-14 -i

clean:
	rm -rf build build-* demo-results
