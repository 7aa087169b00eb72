/* libringccl_c.so: RingCCL's communicators for C and C++.
 *
 * Objects are pointers that the caller frees once. Every function may be called from any thread, but one work object
 * only by one thread at a time. Nothing unwinds out of these functions; ringccl_last_error() has the calling thread's
 * last text.
 */
#ifndef RINGCCL_H
#define RINGCCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RINGCCL_ABI 1
#define RINGCCL_ID_BYTES 128

typedef enum {
    RINGCCL_OK = 0,
    RINGCCL_INVALID_ARGUMENT = 1, /* nothing was done; the communicator can go on */
    RINGCCL_INVALID_USAGE = 2,
    RINGCCL_SYSTEM = 3,
    RINGCCL_REMOTE = 4, /* another rank failed, left or aborted */
    RINGCCL_TIMEOUT = 5,
    RINGCCL_INTERNAL = 6,
    RINGCCL_PENDING = 7 /* not done yet; no error */
} ringccl_status;

typedef enum {
    RINGCCL_ALL_REDUCE = 0,
    RINGCCL_BROADCAST = 1,
    RINGCCL_REDUCE = 2,
    RINGCCL_ALL_GATHER = 3,
    RINGCCL_REDUCE_SCATTER = 4,
    RINGCCL_ALL_TO_ALL = 5,
    RINGCCL_GATHER = 6,
    RINGCCL_SCATTER = 7,
    RINGCCL_ALL_GATHER_V = 8,
    RINGCCL_REDUCE_SCATTER_V = 9,
    RINGCCL_ALL_TO_ALL_V = 10,
    RINGCCL_BARRIER = 11,
    RINGCCL_SEND = 12,
    RINGCCL_RECV = 13
} ringccl_kind;

/* Element types, by NCCL's numbers. */
typedef enum {
    RINGCCL_I8 = 0,
    RINGCCL_U8 = 1,
    RINGCCL_I32 = 2,
    RINGCCL_U32 = 3,
    RINGCCL_I64 = 4,
    RINGCCL_U64 = 5,
    RINGCCL_F16 = 6,
    RINGCCL_F32 = 7,
    RINGCCL_F64 = 8,
    RINGCCL_BF16 = 9,
    RINGCCL_F8E4M3 = 10,
    RINGCCL_F8E5M2 = 11
} ringccl_dtype;

typedef enum {
    RINGCCL_SUM = 0,
    RINGCCL_PROD = 1,
    RINGCCL_MAX = 2,
    RINGCCL_MIN = 3,
    RINGCCL_AVG = 4,
    RINGCCL_PREMUL_SUM = 5,
    RINGCCL_BIT_AND = 6,
    RINGCCL_BIT_OR = 7,
    RINGCCL_BIT_XOR = 8
} ringccl_reduction;

/* Buffers as NCCL has them: in place is send == recv, or the own block of the buffer that has a block of every rank. */
typedef struct {
    uint32_t kind;
    uint32_t dtype;
    uint32_t reduction;
    int32_t peer; /* root, or other rank of a message; -1: receive from any */
    uint32_t tag;
    uint32_t reserved; /* 0 */
    const void *send;
    void *recv;
    uint64_t count;              /* elements: of the buffer, or of each rank's block */
    const uint64_t *counts;      /* per rank: blocks of the V kinds; what ALL_TO_ALL_V sends */
    const uint64_t *recv_counts; /* per rank: what ALL_TO_ALL_V receives */
    const void *factor;          /* one element: the factor of PREMUL_SUM */
} ringccl_op;

/* Equal on all ranks. */
typedef struct {
    uint64_t timeout_ns;      /* of an operation; RINGCCL_TIMEOUT_MS may make it less */
    uint64_t join_timeout_ns; /* of joining; RINGCCL_JOIN_TIMEOUT_MS may make it less */
    uint32_t reports;         /* 1: writes the report that RINGCCL_REPORT asks for */
    uint32_t reserved;        /* 0 */
} ringccl_options;

typedef struct ringccl_root ringccl_root;
typedef struct ringccl_comm ringccl_comm;
typedef struct ringccl_work ringccl_work;
typedef struct ringccl_memory ringccl_memory;

typedef void (*ringccl_release_fn)(void *context);
typedef void (*ringccl_done_fn)(void *context, ringccl_status status, const char *text);

uint32_t ringccl_abi(void);
const char *ringccl_version(void);
const char *ringccl_last_error(void);

/* A rendezvous on this host; free it when all have joined. */
ringccl_status ringccl_root_new(uint8_t id[RINGCCL_ID_BYTES], ringccl_root **out);
void ringccl_root_free(ringccl_root *root);

ringccl_status ringccl_comm_join(const uint8_t id[RINGCCL_ID_BYTES], uint32_t rank, uint32_t nranks,
                                 const ringccl_options *options, ringccl_comm **out);
/* Runs one operation to its end. */
ringccl_status ringccl_comm_run(const ringccl_comm *comm, const ringccl_op *op);
/* Starts operations; release(context) is called once, from any thread, when no buffer is needed any more. */
ringccl_status ringccl_comm_start(const ringccl_comm *comm, const ringccl_op *ops, uint64_t count,
                                  ringccl_release_fn release, void *context, ringccl_work **out);
void ringccl_comm_abort(const ringccl_comm *comm);
ringccl_status ringccl_comm_error(const ringccl_comm *comm);
uint64_t ringccl_comm_seqno(const ringccl_comm *comm);
ringccl_status ringccl_comm_finalize(const ringccl_comm *comm);
void ringccl_comm_free(ringccl_comm *comm);

/* 0: looks and does not wait. */
ringccl_status ringccl_work_wait(ringccl_work *work, uint64_t limit_ns);
ringccl_status ringccl_work_on_done(ringccl_work *work, ringccl_done_fn done, void *context);
int32_t ringccl_work_source(const ringccl_work *work);
void ringccl_work_free(ringccl_work *work);

ringccl_status ringccl_memory_new(uint64_t bytes, void **address, ringccl_memory **out);
/* Collective. */
ringccl_status ringccl_memory_register(const ringccl_memory *memory, const ringccl_comm *comm);
void ringccl_memory_free(ringccl_memory *memory);

#ifdef __cplusplus
}
#endif
#endif
