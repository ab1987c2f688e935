# The two that a newcomer needs: `make demo` and `make test`. Nothing else has to be installed
# first but Python 3.11 or newer, make and a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# CUDA=1 builds llama.cpp for NVIDIA GPUs, PORTABLE=1 for any CPU of this kind.
export CUDA PORTABLE

# Programs of others that tests drive: those that `make clients` installed, unless told otherwise.
CLIENTS := $(VENV)/clients
export TABBY_AGENT_DIR ?= $(wildcard $(CLIENTS)/node_modules/tabby-agent)
# Editors that tests drive: what `make test-editors` installed.
EDITORS := $(VENV)/editors
export CODE_SERVER_DIR ?= $(abspath $(EDITORS)/code-server)
VSCODE := editor-clients/vscode
VSIX := $(VSCODE)/suture.vsix

.PHONY: setup demo serve clients vscode test editors test-editors test-vllm check fix pages bench .bench clean

setup: $(STAMP)
	@$(BIN)/python .dev/llama_wheel.py

$(STAMP): pyproject.toml .dev/llama_wheel.py
	@$(PYTHON) .dev/llama_wheel.py --make-venv $(VENV)
	@echo "Installing Suture and its tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python .dev/llama_wheel.py
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[local]' --group dev
	@touch $@

demo: setup
	@$(BIN)/python .dev/demo.py

serve: setup
	@$(BIN)/suture serve

# Needs npm, 22 MB and some seconds. Without it the tests of this client are skipped.
clients: $(CLIENTS)/node_modules/tabby-agent

$(CLIENTS)/node_modules/tabby-agent:
	@npm install --prefix $(CLIENTS) --ignore-scripts --no-audit --no-fund --no-save --loglevel=error \
		tabby-agent@1.5.0

# The extension for VS Code. Needs npm; no script of a package is run.
vscode: $(VSIX)

$(VSIX): $(VSCODE)/node_modules/.package-lock.json $(wildcard $(VSCODE)/src/*.ts) \
		$(addprefix $(VSCODE)/, package.json tsconfig.json build.mjs .vscodeignore README.md CHANGELOG.md icon.png)
	@cd $(VSCODE) && PATH="$(abspath $(EDITORS)/bin):$$PATH" npm run --silent package

$(VSCODE)/node_modules/.package-lock.json: $(VSCODE)/package-lock.json
	@cd $(VSCODE) && PATH="$(abspath $(EDITORS)/bin):$$PATH" \
		npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

test: setup
	@$(BIN)/python -m pytest

editors: setup
	@$(BIN)/python .dev/install_editors.py $(EDITORS)
	@$(MAKE) --no-print-directory vscode

# The same scenarios in each editor. Installs what is missing: a browser and tmux (as root, with apt),
# Node 24 and code-server (700 MB), the extension; the first time that takes two minutes. What is still
# missing then fails its tests.
test-editors: editors
	@EDITORS_NEEDED=1 $(BIN)/python -m pytest tests/editors $(ARGS)

# Suture before a real vLLM and its router, beside the same model in Suture's own engine; what came of
# it in a report. The first time vLLM is installed: 2.5 GB, three minutes. TORCH_INDEX is the address
# of PyTorch's index for CPUs, needed where pip is not configured with one that has these builds.
VLLM := $(VENV)/vllm
REPORT ?= tests/real_vllm/REPORT.md
test-vllm: setup
	@$(BIN)/python .dev/install_vllm.py $(VLLM) $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX))
	@VLLM_DIR=$(abspath $(VLLM)) VLLM_REPORT=$(abspath $(REPORT)) $(BIN)/python -m pytest tests/real_vllm $(ARGS)

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests
	@$(BIN)/mypy benchmarks/*.py benchmarks/harness/*.py benchmarks/harness/*/*.py
	@$(BIN)/mypy .dev/demo.py .dev/install_editors.py .dev/install_vllm.py .dev/llama_wheel.py .dev/record_neovim.py
	@$(BIN)/lint-imports

fix: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The page at / anew, after a change of server/pages/src; what comes out is committed. Needs npm.
pages:
	@cd server/pages && npm ci --silent && npm run --silent build

# The benchmarks of text, with their figures.
bench: .bench
	@for name in detokenizing experiments vocabularies vocabulary; do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

# One of the engine's benchmarks: make bench-decoding LLAMA_SERVER=PATH ARGS='--n 3'.
# Without LLAMA_SERVER only ours is measured, and so it is by those that compare with nothing of it.
# docs/performance.md says which there are.
COMPARED := decoding drafting editors keystrokes leaving readiness typing_stability
bench-%: .bench
	@$(BIN)/python benchmarks/$*.py \
		$(if $(LLAMA_SERVER),$(if $(filter $*,$(COMPARED)),--llama-server $(LLAMA_SERVER))) $(ARGS)

# make experiment-cost, -held, -stop, -windows: one table each, and what it shows.
experiment-%: .bench
	@$(BIN)/python benchmarks/experiments.py $*

.bench: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench

clean:
	rm -rf $(VENV) dist
