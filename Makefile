# One command for each thing; `make help` lists them. Recipes live in scripts/.

.PHONY: help demo demo-cluster balloon lab-report test test-suites fuzz-sql dist crash bench bench-oltp bench-analytics clean fmt lint slt isolation setup fuzz miri loom

help: ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

demo: ## Four tenants, SSB, every answer checked, 20 s of load (KEEP=1 leaves the node running)
	@scripts/demo

demo-cluster: ## Three nodes and etcd on loopback, tenants under load, a node killed in the middle; TENANTS=6 USERS=6 SECONDS_EACH=8
	@scripts/demo-cluster

balloon: ## Memory moves between a MariaDB and a node under load, live; SECONDS_EACH=25 MEMORY=1200MB
	@scripts/balloon

test: ## Everything CI checks: format, lints, unit, SQL and end-to-end tests
	@scripts/test

test-suites: ## Suites of Django, SQLAlchemy, asyncpg, pgx, node-postgres, PostgreSQL; SUITES="asyncpg pgx"
	@scripts/suites $(SUITES)

fuzz-sql: ## Random SQL beside PostgreSQL 15; STATEMENTS=20000 SEED=7 JOBS=1
	@scripts/fuzz-sql --statements $(or $(STATEMENTS),20000) --jobs $(or $(JOBS),1) $(if $(SEED),--seed $(SEED))

dist: ## The node as it is shipped, target/dist/aerostat, trained by a load; TRAIN=0 without training
	@scripts/dist

crash: ## Kill the node and its storage thousands of times; ROUNDS=2000 DIFF_ROUNDS=300
	@scripts/crash

bench-oltp: ## pgbench and sysbench beside PostgreSQL 15; SECONDS_EACH=10 RUNS=3
	@scripts/bench oltp

bench-analytics: ## SSB, TPC-H and page views beside five engines; SUITES="ssb tpch hits" SCALE=1 THREADS=1,2 PEERS=duckdb
	@scripts/bench analytics

bench: ## Load SSB and measure; SCALE=1 USERS=2 DURATION=30; compares answers with DuckDB's
	@scripts/bench

slt: ## SQL tests alone; SLT=joins runs one file, FILES="a.slt folder" those of others
	@cargo test --release -p aerostat-server --test e2e -- slt

lab-report: ## The lab's experiments, quickly, and their report looked at in a headless browser
	@scripts/lab-report

isolation: ## Isolation scripts alone; ISOLATION=writers runs one file
	@cargo test --release -p aerostat-server --test e2e -- isolation

lint: ## Format check, crate arrows, clippy
	@scripts/test lint

fuzz: ## Fuzz the decoders, SECONDS_EACH=60 each; needs nightly and cargo-fuzz
	@scripts/fuzz

miri: ## Look for undefined behaviour in the segment's pointer logic; needs nightly with Miri
	@scripts/miri

loom: ## Models of threads without locks, in every order; LOOM_MAX_PREEMPTIONS=2
	@scripts/loom

fmt: ## Format the code
	@cargo fmt --all

setup: ## Install what the other commands need
	@scripts/setup

clean: ## Remove what was built
	@cargo clean
	@rm -rf .demo .venv .suites .clients tests/clients/node/node_modules .venv-s3 .venv-analytics bench-analytics
