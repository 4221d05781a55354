"""Words: what each input means and where its default comes from."""

from __future__ import annotations

from typing import Final

HELP: Final = {
    "preset": "Replaces the whole scenario by an example. Your own files stay available.",
    "gpu": "The accelerator, from its data sheet (hw_specs/gpus). Default: H100 SXM, the most measured one.",
    "model": "The target model: shapes from its published configuration (model_specs/targets). "
    "Default: Llama-3.1-8B. Upload your own config.json under *Your own data*.",
    "draft": "What drafts the tokens. *auto* takes the published EAGLE-3, MTP or EAGLE head of this model, "
    "or else a head of the usual width; which one was taken is listed under *Assumed*.",
    "engine": "The serving engine decides host overhead, captured CUDA graphs and how drafting scales with "
    "K. Default: the newest vLLM profile (hw_specs/engines).",
    "tp": "Tensor parallel: ranks that split every matrix. Must divide the query heads. Default 1.",
    "ep": "Expert parallel: ranks over which whole experts are spread (must divide TP × DP). Default 1.",
    "pp": "Pipeline stages. Default 1.",
    "dp": "Data-parallel attention replicas; the batch is dealt over them. Default 1.",
    "weights": "Number format of the linear layers. Default: as the checkpoint was released.",
    "kv": "Number format of the KV cache. *auto* is the engine's default: usually that of the activations.",
    "bs": "Sequences in one step, over all replicas. Default 64.",
    "ctx": "KV length of each sequence, in tokens. Default 1024.",
    "kmax": "Largest number of drafted tokens considered. Default 8: few heads were trained for more.",
    "form": "How you know the acceptance. *Default* is a published curve for this kind of drafter and "
    "workload; your own numbers are better: upload a log on the Acceptance page.",
    "c1": "Chance that the first drafted token is accepted.",
    "decay": "Each further position is accepted with δ times the chance of the one before, given that all "
    "before were accepted. 1: flat, the usual case for chain drafters. Below 1: block drafters.",
    "alk": "The K at which the acceptance length was measured.",
    "al": "Tokens emitted per step, the bonus token included: between 1 and K+1.",
    "meank": "The K at which that share was measured: it falls with K by arithmetic.",
    "mean": "Accepted over drafted tokens, what engines print as draft acceptance rate.",
    "emit": "Which engine's form to write. Default: the scenario's engine.",
    "marginal": "Share of steps that accept at least i drafts, i = 1, 2, …: what engines print per position.",
    "conditional": "Chance of position i given that all before were accepted, for i = 1, 2, …",
    "workload": "Which published curve stands in for your traffic. Default: mixed.",
    "skew": "Popularity of experts ∝ rank^−skew. 0: all alike (the default; it reads the most experts).",
    "overlap": "Share of experts that consecutive tokens of a sequence share. −1: chance (the default).",
    "graphs": "Replay captured CUDA graphs. Off is eager mode: the host launches every kernel.",
    "ideal": "Efficiency 1 and no fixed cost: the floor no kernel can beat.",
    "seqs": "The engine's limit of running requests; graphs are captured up to it. 0: the engine's default.",
    "k": "The K whose step is taken apart. Default: the best K.",
    "model2": "A second model on the same hardware, engine and drafter choice *auto*.",
    "regret": "Goodput the schedule may give up at any batch: more loss, fewer ranges. Default 1 %.",
    "distinct": "At most this many different K: each costs a set of CUDA graphs. 0: no limit.",
    "maxbatch": "Largest batch in the schedule. 0: what the engine admits and the memory holds.",
    "a": "Requests differ: each has its own flat acceptance c, drawn from Beta(a, b).",
    "b": "The larger b against a, the lower the mean acceptance a/(a+b).",
    "up_model": "A Hugging Face config.json. Read as data, kept for this session only. At most 1 MB.",
    "up_draft": "The config.json of a draft head or of a small model. At most 1 MB.",
    "up_gpu": "A GPU file in the form of hw_specs/gpus/*.yaml. At most 1 MB.",
    "up_curve": "Columns rows and ms (or seconds): time of one target pass by the number of tokens in it. "
    "Replaces the modelled verify time. At most 4 MB.",
    "up_log": "Server log, Prometheus metrics, benchmark result or statistics of vLLM, SGLang, TensorRT-LLM, "
    "llama.cpp or AIPerf. At most 64 MB.",
    "up_measured": "Your own table: batch_size, k and a step time, time per token or throughput per row, "
    "as in the validation folders. Compared with the scenario on the screen. At most 8 MB.",
    "up_schedule": "A schedule in the engine's own form: --speculative-config, adaptive config, or YAML.",
}

VIEW_INTRO: Final = {
    "What-if": "Which K (drafted tokens per step) is best here, and what speculative decoding (SD) brings.",
    "Best K map": "Speed-up over SD off at every batch and K; the line is the best K.",
    "Why": "What limits this step, and what the next drafted token costs.",
    "Acceptance": "From whatever you know about acceptance to a curve.",
    "Schedule": "K by batch size, as your engine reads it.",
    "Compare": "Up to four scenarios side by side.",
    "Accuracy": "How far the model is from published measurements.",
}

FORM_NAMES: Final = {
    "default": "published default",
    "c1": "c₁ and decay δ",
    "al": "acceptance length at K",
    "beta": "Beta mixture (a, b)",
    "mean": "accepted / drafted at K",
    "marginal": "marginal by position",
    "conditional": "conditional by position",
    "file": "from an uploaded log",
}

BOUND_NAMES: Final = {
    "memory": "memory bandwidth",
    "compute": "arithmetic",
    "launch": "fixed cost per kernel",
    "link": "links between ranks",
    "host": "host",
}
