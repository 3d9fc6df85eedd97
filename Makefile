# What is there to do: `make help`. All of it works from a fresh clone.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
.PHONY: sim waves verilog prove coverage test lint clean help

# Every VAR=value typed on the command line goes to the program as it was typed, so that a wrong
# name is refused there, in one place. PYTHON is make's own.
quote = '$(subst ','\'',$(1))'
typed = $(sort $(foreach name,$(filter-out PYTHON -*-%,$(.VARIABLES)),$(if \
	$(filter command,$(firstword $(origin $(name)))),$(name))))
parameters = $(foreach name,$(typed),$(call quote,$(name)=$(value $(name))))

# In the environment they would only be expanded once more.
unexport $(typed)

sim: $(READY)
	@$(VENV)/bin/python -m sim run $(parameters)

waves: $(READY)
	@$(VENV)/bin/python -m sim waves $(parameters)

verilog: $(READY)
	@$(VENV)/bin/python -m sim verilog $(parameters)

prove: $(READY)
	@$(VENV)/bin/python -m sim prove $(parameters)

coverage: $(READY)
	@$(VENV)/bin/python -m sim coverage $(parameters)

# These take no parameters, but for those that are named.
others = $(filter-out $(1),$(typed))
only = $(if $(others),@echo 'make $@ takes no parameters$(if \
	$(1), but $(1)): leave out $(others).' >&2; exit 2)

test: $(READY)
	$(call only,ARBITER)
	$(VENV)/bin/python -m pytest tb/$(if \
	$(filter ARBITER,$(typed)), --arbiter=$(call quote,$(value ARBITER)))

lint: $(READY)
	$(call only)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright

clean:
	$(call only)
	rm -rf build

help:
	@echo 'make sim       run traffic on the shared entry and show what came of it'
	@echo 'make waves     the same, then look at it in GTKWave'
	@echo '               with CASE=... either of them replays a recorded violation,'
	@echo '               with SCRIPT=... it plays steps of your own'
	@echo 'make verilog   write the table as one Verilog file'
	@echo 'make prove     prove what each policy declares, and refute the rest'
	@echo 'make coverage  say what the benches reach, and what can never be reached'
	@echo 'make test      run all tests, or those that a policy must pass: ARBITER=...'
	@echo 'make lint      check style and types'
	@echo 'make clean     remove everything that was built or run'
	@echo
	@echo 'Parameters follow as NAME=value, for example: make sim ARBITER=pending_bit SEED=7'
	@echo 'PYTHON=... names another Python than python3 for the set-up of $(VENV).'
	@echo
	@if [ -e $(READY) ]; then $(VENV)/bin/python -m sim help; \
	else echo 'After the first of them, make help lists all parameters, too.'; fi

# Made anew whenever the lock changes, so that nothing is left of an older one.
$(READY): requirements.lock
	@PYTHON='$(PYTHON)' sh sim/prerequisites.sh
	@echo 'Setting up $(VENV) (once, about a minute) ...'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	@touch $@
