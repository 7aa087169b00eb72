/* Shared measuring protocol of the C/C++ peers: a peer supplies the struct
 * below and calls bench_main(); bench.h times, verifies and prints JSON lines.
 *
 * "bytes" is what nccl-tests calls size: the larger of a rank's two buffers
 * (all of the gathered buffer for allgather, all of the scattered one for
 * reducescatter and alltoall). One sample = barrier, then K operations back to
 * back on each rank; its value is the slowest rank's time / K. Reported are the
 * median and the 99th percentile of the samples (so p99_us is of means over K
 * operations; with under 100 samples it is the slowest one), and cpu_us: user and
 * system time of all ranks over all samples, barriers between them included,
 * divided by the operations timed. It tells a peer that waits in a busy loop from
 * one that sleeps. Results are checked before and after the timed loop. */
#ifndef BENCH_H
#define BENCH_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    const char *name;
    int rank, ranks;
    /* n is floats per rank in the smaller buffer; return 0, or -1 if the peer
     * has no such operation. sendrecv is one round trip with rank^1. */
    int (*run)(const char *op, float *send, float *recv, size_t n);
    void (*max_doubles)(double *v, int n); /* in-place max over the ranks */
} peer_t;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* user + system time of this process so far */
static double cpu_us(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* sum of each rank's x; by a max over one entry a rank, as peers supply only max */
static double sum_ranks(const peer_t *p, double x) {
    double sum = 0, *v = (double *)calloc(p->ranks, sizeof *v);
    v[p->rank] = x;
    p->max_doubles(v, p->ranks);
    for (int i = 0; i < p->ranks; i++) sum += v[i];
    free(v);
    return sum;
}

static int cmp_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int is(const char *op, const char *what) { return strcmp(op, what) == 0; }

/* integers below 1024: their sums over many ranks are exact in float32 */
static float pattern(int rank, size_t i) {
    return (float)(((uint32_t)i * 2654435761u + (uint32_t)rank * 2246822519u) >> 22);
}

static void fill(const char *op, const peer_t *p, float *s, float *r, size_t ns, size_t nr) {
    for (size_t i = 0; i < ns; i++) s[i] = pattern(p->rank, i);
    if (r == s) return;
    for (size_t i = 0; i < nr; i++) r[i] = -1.0f;
    if (is(op, "broadcast") && p->rank == 0)
        for (size_t i = 0; i < nr; i++) r[i] = pattern(0, i);
}

static int verify(const char *op, const peer_t *p, const float *r, size_t n, size_t nr) {
    int sum = is(op, "reducescatter") || !strncmp(op, "allreduce", 9);
    size_t off = is(op, "reducescatter") || is(op, "alltoall") ? p->rank * n : 0;
    for (size_t b = 0; b < nr / n; b++, r += n) { /* block b: from rank `from`, or the sum of all */
        int from = sum || is(op, "broadcast") ? 0 : is(op, "sendrecv") ? p->rank ^ 1 : (int)b;
        size_t bad = 0;
        for (size_t i = 0; i < n; i++) {
            float want = pattern(from, off + i);
            for (int k = 1; sum && k < p->ranks; k++) want += pattern(k, off + i);
            bad += r[i] != want;
        }
        if (bad) {
            fprintf(stderr, "%s %s rank %d block %zu: %zu of %zu wrong\n", p->name, op, p->rank, b, bad, n);
            return 0;
        }
    }
    return 1;
}

static void point(const peer_t *p, const char *op, size_t bytes, double budget_us) {
    int R = p->ranks, barrier = is(op, "barrier");
    int split = is(op, "allgather") || is(op, "reducescatter") || is(op, "alltoall");
    size_t n = bytes / 4 / (split ? R : 1);
    if (!n && !barrier) n = 1, bytes = split ? 4 * R : 4; /* no less than a float each */
    size_t ns = is(op, "allgather") ? n : split ? n * R : n;
    size_t nr = is(op, "reducescatter") ? n : split ? n * R : n;
    double fail = 0, med = 0, lo = 0, p99 = 0, cpu = 0;
    int K = 1, S = 0;
    float *s = NULL, *r = NULL;
    alarm(120); /* a hung or pathological point ends this rank, and so the launch */
    if (!barrier) {
        if (posix_memalign((void **)&s, 4096, ns * 4 + 4096)) abort();
        if (is(op, "allreduce_ip")) r = s;
        else if (posix_memalign((void **)&r, 4096, nr * 4 + 4096)) abort();
        fill(op, p, s, r, ns, nr);
    }
    int rc = p->run(op, s, r, n);
    if (rc == 0) {
        if (!barrier) {
            fail = !verify(op, p, r, n, nr);
            memset(s, 0, ns * 4); /* timed on zeros: in-place sums must not grow */
            memset(r, 0, nr * 4);
        }
        double est = 0;
        for (int k = 1; k <= 4096; k *= 4) { /* warm up and size the batch */
            p->run("barrier", 0, 0, 0);
            double t = now_us();
            for (int i = 0; i < k; i++) p->run(op, s, r, n);
            est = (now_us() - t) / k;
            p->max_doubles(&est, 1);
            if (est * k > 20e3) break;
        }
        K = (int)fmax(1, fmin(20000, 10e3 / est)); /* a sample is >= 10 ms */
        S = (int)fmax(3, fmin(101, budget_us / (est * K)));
        double *v = (double *)malloc(S * sizeof *v), cpu0 = cpu_us();
        for (int j = 0; j < S; j++) {
            p->run("barrier", 0, 0, 0);
            double t = now_us();
            for (int i = 0; i < K; i++) p->run(op, s, r, n);
            v[j] = (now_us() - t) / K;
        }
        cpu = sum_ranks(p, cpu_us() - cpu0) / ((double)S * K);
        p->max_doubles(v, S);
        qsort(v, S, sizeof *v, cmp_double);
        med = S % 2 ? v[S / 2] : (v[S / 2 - 1] + v[S / 2]) / 2;
        lo = v[0];
        p99 = v[(99 * S + 99) / 100 - 1]; /* nearest rank */
        free(v);
        if (is(op, "sendrecv")) med /= 2, lo /= 2, p99 /= 2, cpu /= 2; /* one way */
        if (!barrier) {
            fill(op, p, s, r, ns, nr);
            p->run(op, s, r, n);
            fail += !verify(op, p, r, n, nr);
            p->max_doubles(&fail, 1);
        }
    }
    alarm(0);
    if (r != s) free(r);
    free(s);
    if (p->rank) return;
    printf("{\"peer\": \"%s\", \"op\": \"%s\", \"ranks\": %d, \"bytes\": %zu, ", p->name, op, R, bytes);
    if (rc) printf("\"ok\": false, \"note\": \"not offered by this peer\"}\n");
    else {
        double alg = med > 0 ? bytes / med / 1e3 : 0;
        double f = !strncmp(op, "allreduce", 9) ? 2.0 * (R - 1) / R : split ? (R - 1.0) / R : 1;
        printf("\"median_us\": %.3f, \"algbw_GBs\": %.4f, \"busbw_GBs\": %.4f, \"ok\": %s, "
               "\"min_us\": %.3f, \"p99_us\": %.3f, \"cpu_us\": %.3f, \"samples\": %d, \"batch\": %d}\n",
               med, alg, alg * f, fail ? "false" : "true", lo, p99, cpu, S, K);
    }
    fflush(stdout);
}

/* argv: BUDGET_S op:bytes op:bytes ... */
static void bench_main(const peer_t *p, int argc, char **argv) {
    double budget_us = argc > 1 ? atof(argv[1]) * 1e6 : 1e6;
    for (int i = 2; i < argc; i++) {
        char op[32];
        size_t bytes = 0;
        if (sscanf(argv[i], "%31[^:]:%zu", op, &bytes) == 2) point(p, op, bytes, budget_us);
    }
}
#endif
