"""Signatures of packages whose kernels are called, with their sources, over one plain reference.

None of these packages runs without a GPU. The functions here have the parameters of theirs, in
their order and with their defaults, check what they check of types and shapes, and compute the
attention that they document from their arguments alone. Read on GitHub in November 2026:

- vLLM: vllm-project/vllm, vllm/vllm_flash_attn/flash_attn_interface.py, commit 99ef9160
  (flash_attn_varlen_func, get_scheduler_metadata); a table goes with seqused_k, not cu_seqlens_k.
- FlashAttention 3: Dao-AILab/flash-attention, hopper/flash_attn_interface.py, commit 01afd16d
  (flash_attn_with_kvcache); "page_block_size can be arbitrary".
- FlashAttention 2: Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py, commit 00530025
  (flash_attn_varlen_func); with a table, blocks are multiples of 256 tokens.
- torch: the installed one's own signature of varlen_attn is taken. What its FlashAttention 2 wants:
  pytorch/pytorch, aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, commit 03b7c19d
  (mha_varlen_fwd: int32 running sums of contexts, blocks of 256); wrong results where it splits
  contexts: pytorch issue 194167.
- FlashInfer: flashinfer-ai/flashinfer, flashinfer/prefill.py, commit 002920bf
  (BatchPrefillWithPagedKVCacheWrapper).
"""

from __future__ import annotations

import inspect
from itertools import pairwise

import torch
from torch.nn.attention.varlen import varlen_attn


def attention(query, pages, starts, contexts):
    """Causal attention aligned to the bottom right: `pages` gives (keys, values) of a piece."""
    out = torch.empty_like(query)
    for piece, (begin, end) in enumerate(pairwise(starts)):
        context, new = contexts[piece], end - begin
        k, v = (tokens.flatten(0, 1)[:context].transpose(0, 1) for tokens in pages(piece))
        q = query[begin:end].transpose(0, 1)
        k, v = (t.repeat_interleave(len(q) // len(t), dim=0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / query.shape[2] ** 0.5
        ahead = torch.ones(new, context).triu(context - new + 1).bool()
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        out[begin:end] = (weights @ v).transpose(0, 1)
    return out


def by_table(q, k, v, cu_seqlens_q, seqused_k, block_table, *, block_sizes=1):
    """What all functions with a table compute."""
    for name, tensor in (("q", cu_seqlens_q), ("k", seqused_k), ("table", block_table)):
        assert tensor.dtype == torch.int32 and tensor.is_contiguous(), name
    assert k.shape == v.shape and k.shape[1] % block_sizes == 0
    assert q.shape[2] == k.shape[3] and q.shape[1] % k.shape[2] == 0
    assert len(cu_seqlens_q) - 1 == len(seqused_k) == len(block_table)
    return attention(
        q,
        lambda piece: (k[block_table[piece].long()], v[block_table[piece].long()]),
        cu_seqlens_q.tolist(),
        seqused_k.tolist(),
    )


def vllm_flash_attn_varlen_func(
    q,
    k,
    v,
    max_seqlen_q,
    cu_seqlens_q,
    max_seqlen_k,
    cu_seqlens_k=None,
    seqused_k=None,
    q_v=None,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=None,
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
    return_softmax_lse=False,
    out=None,
    scheduler_metadata=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    num_splits=0,
    fa_version=2,
    s_aux=None,
    cp_world_size=1,
    cp_rank=0,
    cp_tot_seqused_k=None,
):
    assert causal and cu_seqlens_k is None and fa_version in {2, 3, 4}
    assert max_seqlen_q == cu_seqlens_q.diff().max() and max_seqlen_k == seqused_k.max()
    assert scheduler_metadata is None or fa_version == 3
    return by_table(q, k, v, cu_seqlens_q, seqused_k, block_table, block_sizes=16)


def vllm_get_scheduler_metadata(
    batch_size,
    max_seqlen_q,
    max_seqlen_k,
    num_heads_q,
    num_heads_kv,
    headdim,
    cache_seqlens,
    qkv_dtype=torch.bfloat16,
    headdim_v=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    cache_leftpad=None,
    page_size=None,
    max_seqlen_k_new=0,
    causal=False,
    window_size=(-1, -1),
    has_softcap=False,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
):
    assert batch_size == len(cache_seqlens) == len(cu_seqlens_q) - 1 and causal
    assert max_seqlen_q == cu_seqlens_q.diff().max() and max_seqlen_k == cache_seqlens.max()
    assert num_heads_q % num_heads_kv == 0 and page_size
    return torch.zeros(batch_size + 1, dtype=torch.int32)


def flash_3_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    qv=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    page_table=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    max_seqlen_q=None,
    rotary_seqlens=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
    return_softmax_lse=False,
):
    assert causal and k is None and v is None
    assert max_seqlen_q == cu_seqlens_q.diff().max()
    return by_table(q, k_cache, v_cache, cu_seqlens_q, cache_seqlens, page_table)


def flash_2_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    if k.shape[1] % 256:
        raise RuntimeError("Paged KV cache block size must be divisible by 256")
    assert causal and max_seqlen_q == cu_seqlens_q.diff().max()
    assert cu_seqlens_k.dtype == torch.int32 and max_seqlen_k == cu_seqlens_k.diff().max()
    return by_table(q, k, v, cu_seqlens_q, cu_seqlens_k.diff().int(), block_table)


def torch_varlen_attn(*arguments, takes_splits=True, **named):
    """Torch's with its FlashAttention 2; before splits could be chosen, choosing them was an error.

    Splits that nobody forbade leave the rows of all pieces but the first as they were.
    """
    bound = inspect.signature(varlen_attn).bind(*arguments, **named)
    bound.apply_defaults()
    given = bound.arguments
    if given["num_splits"] is not None and not takes_splits:
        raise RuntimeError("num_splits requires FA3")
    if given["cu_seq_k"] is None:
        raise RuntimeError("cu_seq_q and cu_seq_k must be both set or both not set")
    assert given["cu_seq_k"].dtype == torch.int32 and given["window_size"] == (-1, 0)
    q, k, v = given["query"], given["key"], given["value"]
    assert given["enable_gqa"] or q.shape[1] == k.shape[2]
    starts, contexts = given["cu_seq_q"], given["seqused_k"]
    assert given["max_q"] == starts.diff().max() and given["max_k"] == contexts.max()
    out = by_table(q, k, v, starts, contexts, given["block_table"], block_sizes=256)
    if takes_splits and given["num_splits"] != 1 and given["max_q"] == 1:
        out[1:] = float("nan")
    return out


class FlashInferWrapper:
    """`plan` reads all but the indices on the host; int32 all."""

    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        use_cuda_graph=False,
        qo_indptr_buf=None,
        paged_kv_indptr_buf=None,
        paged_kv_indices_buf=None,
        paged_kv_last_page_len_buf=None,
        custom_mask_buf=None,
        mask_indptr_buf=None,
        backend="auto",
        jit_args=None,
        jit_kwargs=None,
    ):
        assert kv_layout == "NHD" and float_workspace_buffer.dtype == torch.uint8

    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        page_size,
        head_dim_vo=None,
        custom_mask=None,
        packed_custom_mask=None,
        causal=False,
        pos_encoding_mode="NONE",
        use_fp16_qk_reduction=False,
        sm_scale=None,
        window_left=-1,
        logits_soft_cap=None,
        rope_scale=None,
        rope_theta=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        non_blocking=True,
    ):
        tensors = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        assert all(tensor.dtype == torch.int32 for tensor in tensors) and causal
        assert int(paged_kv_indptr[-1]) == len(paged_kv_indices)
        pages = paged_kv_indptr.diff()
        assert ((paged_kv_last_page_len >= 1) & (paged_kv_last_page_len <= page_size)).all()
        self._starts = qo_indptr.tolist()
        self._contexts = ((pages - 1) * page_size + paged_kv_last_page_len).tolist()
        self._pages = paged_kv_indices.long().split(pages.tolist())
        self._sizes = (num_qo_heads, num_kv_heads, head_dim_qk, page_size, q_data_type)
        assert kv_data_type == q_data_type

    def run(self, q, paged_kv_cache, *args, k_scale=None, v_scale=None, out=None, lse=None):
        keys, values = paged_kv_cache
        sizes = (q.shape[1], keys.shape[2], keys.shape[3], keys.shape[1], q.dtype)
        assert sizes == self._sizes
        return attention(
            q,
            lambda piece: (keys[self._pages[piece]], values[self._pages[piece]]),
            self._starts,
            self._contexts,
        )


class FlashInfer:
    """The package."""

    __version__ = "0.0"
    BatchPrefillWithPagedKVCacheWrapper = FlashInferWrapper
