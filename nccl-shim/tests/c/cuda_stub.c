/* The least of a CUDA driver that nccl4py wants to see before it loads NCCL. */
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

int cuInit(unsigned flags) { return (int)(flags & 0); }
