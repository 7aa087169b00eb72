/* What wrong calls are answered: a call, the code, and a part of the text, a row each. */
#include "check.h"
#include <limits.h>
#include <sys/mman.h>

static int failed;

static void row(int line, const char *call, ncclResult_t result, ncclResult_t wanted, const char *text) {
    const char *said = ncclGetLastError(NULL);
    if (result == wanted && (text == NULL || strstr(said, text) != NULL)) return;
    failed = 1;
    fprintf(stderr, "line %d: %s\n  is %d, wanted %d; ", line, call, result, wanted);
    fprintf(stderr, "says `%s`, wanted `%s`\n", said, text);
}

#define ROW(call, code, text) row(__LINE__, #call, call, code, text)
#define IA ncclInvalidArgument
#define IU ncclInvalidUsage

/* The configuration of an old header at the very end of a page: who reads more than that faults. */
static void *config_at_end(size_t size, unsigned version) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    char *config = pages + 4096 - size;
    ncclConfig_t whole = NCCL_CONFIG_INITIALIZER;
    /* Padding has whatever the stack had. */
    memcpy(config, &whole, size);
    memcpy(config, &size, sizeof size);
    memcpy(config + 12, &version, sizeof version);
    return config;
}

int main(void) {
    float a[8] = {1}, b[8];
    int n;
    ncclResult_t state;
    uint64_t bytes;
    void *pointer;
    ncclUniqueId id, garbage_id;
    ncclComm_t comms[2], none = NULL, out, dead, foreign = (ncclComm_t)a, odd = (ncclComm_t)0x17;
    ncclRedOp_t op;
    ncclWindow_t window;
    ncclWaitSignalDesc_t desc = {1, 0, 0, 0};
    memset(&garbage_id, 0x5a, sizeof garbage_id);

    TRUE(strcmp(ncclGetLastError(NULL), "") == 0);
    ROW(ncclGetVersion(NULL), IA, "version");
    ROW(ncclGetUniqueId(NULL), IA, "uniqueId");
    OK(ncclGetUniqueId(&id));
    ROW(ncclGroupEnd(), IU, "not in a group call");
    ROW(ncclCommInitRank(NULL, 1, id, 0), IA, "newcomm argument is NULL");
    ROW(ncclCommInitRank(&out, 0, id, 0), IA, "0 is no number of ranks");
    ROW(ncclCommInitRank(&out, -2, id, 0), IA, "no number of ranks");
    ROW(ncclCommInitRank(&out, 2, id, 2), IA, "rank 2");
    ROW(ncclCommInitRank(&out, 2, id, -1), IA, "rank -1");
    TRUE(out == NULL);
    ROW(ncclCommInitRank(&out, 1, garbage_id, 0), IA, "unique id");
    ROW(ncclCommInitRankScalable(&out, 2, 0, 0, &id, NULL), IA, "0 ids");
    ROW(ncclCommInitRankScalable(&out, 2, 0, 3, &id, NULL), IA, "3 ids");
    ROW(ncclCommInitRankScalable(&out, 2, 0, 1, NULL, NULL), IA, "commIds");
    ROW(ncclCommInitAll(NULL, 2, NULL), IA, "2 communicators");
    ROW(ncclCommInitAll(comms, -1, NULL), IA, "-1 communicators");
    int devices[2] = {0, -3};
    ROW(ncclCommInitAll(comms, 2, devices), IA, "invalid device -3");
    devices[1] = 0;
    OK(ncclCommInitAll(comms, 2, devices));
    OK(ncclCommInitAll(&dead, 1, NULL));
    OK(ncclCommDestroy(dead));

    /* Configurations: of every header, at the end of a page; wrong ones. */
    struct { size_t size; unsigned version; } headers[] = {{24, 21403}, {40, 21701}, {48, 21801}, {48, 22602},
        {72, 22703}, {80, 22809}, {88, 22907}, {96, 23003}, {96, 23007}};
    for (unsigned i = 0; i < sizeof headers / sizeof *headers; i++) {
        OK(ncclGetUniqueId(&id));
        void *passed = config_at_end(headers[i].size, headers[i].version);
        ROW(ncclCommInitRankConfig(&out, 1, id, 0, passed), ncclSuccess, NULL);
        OK(ncclCommDestroy(out));
    }
    OK(ncclGetUniqueId(&id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER, wrong;
    memset(&wrong, 0, sizeof wrong);
    ROW(ncclCommInitRankConfig(&out, 1, id, 0, &wrong), IA, "NCCL_CONFIG_INITIALIZER");
#define CONFIG(field, value)                                                     \
    wrong = config;                                                              \
    wrong.field = value;                                                         \
    ROW(ncclCommInitRankConfig(&out, 1, id, 0, &wrong), IA, #field)
    CONFIG(blocking, 2);
    CONFIG(cgaClusterSize, -1);
    CONFIG(minCTAs, 0);
    CONFIG(maxCTAs, 0);
    CONFIG(splitShare, 3);
    CONFIG(collnetEnable, 2);
    CONFIG(CTAPolicy, 9);
    CONFIG(shrinkShare, -1);
    CONFIG(nvlsCTAs, 0);
    CONFIG(nChannelsPerNetPeer, 65);
    CONFIG(nvlinkCentricSched, 2);
    CONFIG(graphUsageMode, 3);
    CONFIG(numRmaCtx, -1);
    CONFIG(maxP2pPeers, 0);
    CONFIG(graphStreamOrdering, 2);

    /* Handles, in every call that has one. */
    ncclComm_t bad[4] = {none, dead, foreign, odd};
    const char *says[4] = {"comm argument is NULL", "destroyed or aborted", "no communicator", "no communicator"};
    for (int i = 0; i < 4; i++) {
        ncclComm_t c = bad[i];
        const char *t = says[i];
        ROW(ncclAllReduce(a, b, 1, ncclFloat, ncclSum, c, NULL), IA, t);
        ROW(ncclReduce(a, b, 1, ncclFloat, ncclSum, 0, c, NULL), IA, t);
        ROW(ncclBcast(a, 1, ncclFloat, 0, c, NULL), IA, t);
        ROW(ncclBroadcast(a, b, 1, ncclFloat, 0, c, NULL), IA, t);
        ROW(ncclAllGather(a, b, 1, ncclFloat, c, NULL), IA, t);
        ROW(ncclReduceScatter(a, b, 1, ncclFloat, ncclSum, c, NULL), IA, t);
        ROW(ncclAlltoAll(a, b, 1, ncclFloat, c, NULL), IA, t);
        ROW(ncclGather(a, b, 1, ncclFloat, 0, c, NULL), IA, t);
        ROW(ncclScatter(a, b, 1, ncclFloat, 0, c, NULL), IA, t);
        ROW(ncclSend(a, 1, ncclFloat, 0, c, NULL), IA, t);
        ROW(ncclRecv(a, 1, ncclFloat, 0, c, NULL), IA, t);
        ROW(ncclPutSignal(a, 1, ncclFloat, 0, NULL, 0, 0, 0, 0, c, NULL), IA, t);
        ROW(ncclSignal(0, 0, 0, 0, c, NULL), IA, t);
        ROW(ncclWaitSignal(1, &desc, c, NULL), IA, t);
        ROW(ncclCommCount(c, &n), IA, t);
        ROW(ncclCommCuDevice(c, &n), IA, t);
        ROW(ncclCommUserRank(c, &n), IA, t);
        ROW(ncclCommGetAsyncError(c, &state), IA, t);
        ROW(ncclCommSplit(c, 0, 0, &out, NULL), IA, t);
        ROW(ncclCommShrink(c, &n, 1, &out, NULL, 0), IA, t);
        ROW(ncclCommGetUniqueId(c, &id), IA, t);
        ROW(ncclCommSuspend(c, 1), IA, t);
        ROW(ncclCommResume(c), IA, t);
        ROW(ncclCommMemStats(c, ncclStatGpuMemTotal, &bytes), IA, t);
        ROW(ncclCommRegister(c, a, 4, &pointer), IA, t);
        ROW(ncclCommDeregister(c, a), IA, t);
        ROW(ncclCommWindowRegister(c, a, 4, &window, 0), IA, t);
        ROW(ncclCommWindowDeregister(c, NULL), IA, t);
        ROW(ncclWinGetUserPtr(c, NULL, &pointer), IA, t);
        ROW(ncclRedOpCreatePreMulSum(&op, a, ncclFloat, ncclScalarHostImmediate, c), IA, t);
        ROW(ncclRedOpDestroy((ncclRedOp_t)77, c), IA, t);
        ncclResult_t end = c == NULL ? ncclSuccess : IA;
        ROW(ncclCommFinalize(c), end, c == NULL ? NULL : t);
        ROW(ncclCommDestroy(c), end, c == NULL ? NULL : t);
        ROW(ncclCommAbort(c), end, c == NULL ? NULL : t);
        ROW(ncclCommRevoke(c, 7), end, c == NULL ? NULL : t);
    }

    /* The order of checks: a rank before a type before an operator before a buffer. */
    ncclComm_t c = comms[0];
    ROW(ncclReduce(NULL, NULL, 1, (ncclDataType_t)12, (ncclRedOp_t)-1, 2, c, NULL), IA, "invalid root 2");
    ROW(ncclReduce(NULL, NULL, 1, (ncclDataType_t)12, (ncclRedOp_t)-1, 1, c, NULL), IA, "invalid type 12");
    ROW(ncclReduce(NULL, NULL, 1, ncclFloat, (ncclRedOp_t)-1, 1, c, NULL), IA, "invalid reduction operation -1");
    ROW(ncclReduce(NULL, NULL, 1, ncclFloat, (ncclRedOp_t)5, 1, c, NULL), IA, "unknown to this communicator");
    ROW(ncclReduce(NULL, NULL, 1, ncclFloat, ncclSum, 1, c, NULL), IA, "sendbuff is NULL");
    ROW(ncclBroadcast(NULL, NULL, 1, ncclFloat, 1, c, NULL), IA, "recvbuff is NULL");
    ROW(ncclBroadcast(NULL, b, 1, ncclFloat, 0, c, NULL), IA, "sendbuff is NULL");
    ROW(ncclBcast(a, 1, ncclFloat, -1, c, NULL), IA, "invalid root -1");
    ROW(ncclGather(a, b, 1, ncclFloat, 5, c, NULL), IA, "invalid root 5");
    ROW(ncclScatter(a, b, 1, ncclFloat, 5, c, NULL), IA, "invalid root 5");
    ROW(ncclSend(a, 1, ncclFloat, 2, c, NULL), IA, "invalid peer 2");
    ROW(ncclRecv(a, 1, (ncclDataType_t)-1, 1, c, NULL), IA, "invalid type -1");
    ROW(ncclSend(NULL, 1, ncclFloat, 1, c, NULL), IA, "sendbuff is NULL");
    ROW(ncclAllReduce(a, b, SIZE_MAX / 2, ncclFloat, ncclSum, c, NULL), IA, NULL);
    ROW(ncclSend(a, 1, ncclFloat, 0, c, NULL), IU, "to the own rank");
    ROW(ncclAllReduce(a, a + 1, 2, ncclFloat, ncclSum, c, NULL), IA, "overlap");
    ROW(ncclAllGather(a + 1, a, 2, ncclFloat, c, NULL), IA, "overlap");

    /* The others. */
    ROW(ncclCommCount(c, NULL), IA, "NULL");
    ROW(ncclCommGetAsyncError(c, NULL), IA, "asyncError");
    ROW(ncclCommSplit(c, 0, 0, NULL, NULL), IA, "newcomm");
    int self[1] = {0}, twice[2] = {1, 1}, far[1] = {9};
    ROW(ncclCommShrink(c, NULL, 1, &out, NULL, 0), IA, "empty or NULL");
    ROW(ncclCommShrink(c, self, 0, &out, NULL, 0), IA, "empty or NULL");
    ROW(ncclCommShrink(c, self, 1, &out, NULL, 0), IA, "calling rank");
    ROW(ncclCommShrink(c, twice, 2, &out, NULL, 0), IA, "twice");
    ROW(ncclCommShrink(c, far, 1, &out, NULL, 0), IA, "excluded rank 9");
    ROW(ncclCommGrow(c, 0, NULL, -1, &out, NULL), IA, "0 is no number");
    ROW(ncclCommGrow(c, 3, NULL, 1, &out, NULL), IA, "passes -1");
    ROW(ncclCommGrow(c, 2, NULL, -1, &out, NULL), IA, "not more than");
    ROW(ncclCommGrow(NULL, 3, NULL, 2, &out, NULL), IA, "needs the id");
    ROW(ncclCommGrow(NULL, 3, &id, 3, &out, NULL), IA, "invalid rank 3");
    ROW(ncclCommRevoke(c, 1), IA, "flags");
    ROW(ncclCommMemStats(c, (ncclCommMemStat_t)4, &bytes), IA, "statistic 4");
    ROW(ncclCommMemStats(c, ncclStatGpuMemTotal, NULL), IA, "value");
    ROW(ncclCommResume(c), IU, "not suspended");
    ROW(ncclCommSuspend(c, 0), ncclSuccess, NULL);
    ROW(ncclMemAlloc(NULL, 8), IA, "ptr");
    ROW(ncclMemFree(a), IA, "not allocated");
    ROW(ncclMemFree(NULL), ncclSuccess, NULL);
    ROW(ncclCommDeregister(c, NULL), ncclSuccess, NULL);
    ROW(ncclCommDeregister(c, a), IU, "no registration");
    ROW(ncclCommWindowRegister(c, a, 4, NULL, 0), IA, "win argument");
    ROW(ncclCommWindowRegister(c, NULL, 4, &window, 0), IA, "make no window");
    ROW(ncclCommWindowRegister(c, a, 0, &window, 0), IA, "make no window");
    ROW(ncclCommWindowDeregister(c, (ncclWindow_t)a), IA, "no window");
    ROW(ncclWinGetUserPtr(c, NULL, &pointer), IA, "win argument");
    ROW(ncclPutSignal(a, 1, ncclFloat, 1, NULL, 0, 1, 0, 0, c, NULL), IA, "must be 0");
    ROW(ncclPutSignal(a, 1, ncclFloat, 1, NULL, 0, 0, 0, 0, c, NULL), IA, "peerWin");
    ROW(ncclSignal(1, 0, 1, 0, c, NULL), IA, "must be 0");
    ROW(ncclSignal(7, 0, 0, 0, c, NULL), IA, "invalid peer 7");
    ROW(ncclWaitSignal(1, NULL, c, NULL), IA, "descriptors");
    desc.peer = 5;
    ROW(ncclWaitSignal(1, &desc, c, NULL), IA, "invalid peer 5");
    ROW(ncclRedOpDestroy(ncclSum, c), IA, "builtin");
    ROW(ncclRedOpDestroy((ncclRedOp_t)-4, c), IA, "none");
    ROW(ncclRedOpDestroy((ncclRedOp_t)12345, c), IA, "unknown");
    ROW(ncclRedOpCreatePreMulSum(NULL, a, ncclFloat, ncclScalarHostImmediate, c), IA, "NULL");
    ROW(ncclRedOpCreatePreMulSum(&op, a, (ncclDataType_t)40, ncclScalarHostImmediate, c), IA, "invalid type 40");
    ROW(ncclRedOpCreatePreMulSum(&op, a, ncclFloat, (ncclScalarResidence_t)2, c), IA, "residence 2");
    /* An operator of one communicator is unknown to another. */
    OK(ncclRedOpCreatePreMulSum(&op, a, ncclFloat, ncclScalarHostImmediate, comms[1]));
    ROW(ncclAllReduce(a, b, 1, ncclFloat, op, c, NULL), IA, "unknown to this communicator");
    ROW(ncclAllReduce(a, b, 1, ncclDouble, op, comms[1], NULL), IA, "was made for float");

    /* Parameters. */
    ncclParamHandle_t param = NULL;
    int32_t number;
    const char *value;
    ROW(ncclParamBind(NULL, "NCCL_DEBUG"), IA, "out");
    ROW(ncclParamBind(&param, NULL), IA, "key");
    ROW(ncclParamBind(&param, "NCCL_NOTHING"), IA, "NCCL_NOTHING");
    OK(ncclParamBind(&param, "NCCL_DEBUG_SUBSYS"));
    ROW(ncclParamGetI32(param, &number), IA, "another type");
    OK(ncclParamGetStr(param, &value));
    TRUE(strcmp(value, "INIT,BOOTSTRAP,ENV") == 0);
    ROW(ncclParamGetStr((ncclParamHandle_t)99, &value), IA, "no parameter");
    ROW(ncclParamGetParameter("NCCL_NOTHING", &value, &n), IA, "no parameter");
    TRUE(value == NULL && n == 0);
    const char **keys;
    OK(ncclParamGetAllParameterKeys(&keys, &n));
    TRUE(n == 6 && strcmp(keys[0], "NCCL_DEBUG") == 0);

    /* Texts of codes, known and unknown. */
    for (int code = -1; code < 12; code++) TRUE(ncclGetErrorString((ncclResult_t)code)[0] != 0);
    TRUE(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
    TRUE(strcmp(ncclGetErrorString((ncclResult_t)-1), ncclGetErrorString((ncclResult_t)9)) == 0);

    /* After all of it the communicator works. */
    OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) OK(ncclAllReduce(&a[r], &b[r], 1, ncclFloat, ncclMax, comms[r], NULL));
    OK(ncclGroupEnd());
    TRUE(b[0] == 1 && b[1] == 1);
    OK(ncclCommDestroy(comms[0]));
    OK(ncclCommDestroy(comms[1]));
    if (failed) return 1;
    puts("done");
    return 0;
}
