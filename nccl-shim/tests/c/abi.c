/* Prints what the header says of sizes, offsets and values: a name and a number a line. */
#include "check.h"
#include <limits.h>
#include <stddef.h>

#define SIZE(type) printf("sizeof %s %zu\n", #type, sizeof(type))
#define OFFSET(type, field) printf("offset %s.%s %zu\n", #type, #field, offsetof(type, field))
#define VALUE(name) printf("value %s %lld\n", #name, (long long)(name))

int main(void) {
    SIZE(ncclUniqueId); SIZE(ncclConfig_t); SIZE(ncclSimInfo_t); SIZE(ncclWaitSignalDesc_t); SIZE(ncclResult_t);
    SIZE(ncclDataType_t); SIZE(ncclRedOp_t); SIZE(ncclScalarResidence_t); SIZE(ncclCommMemStat_t);
    OFFSET(ncclConfig_t, size); OFFSET(ncclConfig_t, magic); OFFSET(ncclConfig_t, version);
    OFFSET(ncclConfig_t, blocking); OFFSET(ncclConfig_t, cgaClusterSize); OFFSET(ncclConfig_t, minCTAs);
    OFFSET(ncclConfig_t, maxCTAs); OFFSET(ncclConfig_t, netName); OFFSET(ncclConfig_t, splitShare);
    OFFSET(ncclConfig_t, trafficClass); OFFSET(ncclConfig_t, commName); OFFSET(ncclConfig_t, collnetEnable);
    OFFSET(ncclConfig_t, CTAPolicy); OFFSET(ncclConfig_t, shrinkShare); OFFSET(ncclConfig_t, nvlsCTAs);
    OFFSET(ncclConfig_t, nChannelsPerNetPeer); OFFSET(ncclConfig_t, nvlinkCentricSched);
    OFFSET(ncclConfig_t, graphUsageMode); OFFSET(ncclConfig_t, numRmaCtx); OFFSET(ncclConfig_t, maxP2pPeers);
    OFFSET(ncclConfig_t, graphStreamOrdering);
    OFFSET(ncclSimInfo_t, size); OFFSET(ncclSimInfo_t, magic); OFFSET(ncclSimInfo_t, version);
    OFFSET(ncclSimInfo_t, estimatedTime);
    OFFSET(ncclWaitSignalDesc_t, opCnt); OFFSET(ncclWaitSignalDesc_t, peer);
    OFFSET(ncclWaitSignalDesc_t, sigIdx); OFFSET(ncclWaitSignalDesc_t, ctx);
    VALUE(NCCL_VERSION_CODE); VALUE(NCCL_UNIQUE_ID_BYTES); VALUE(NCCL_CONFIG_UNDEF_INT); VALUE(NCCL_SPLIT_NOCOLOR);
    VALUE(NCCL_SHRINK_ABORT); VALUE(NCCL_SUSPEND_MEM); VALUE(NCCL_API_MAGIC);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    printf("value sim_magic %lld\n", (long long)info.magic);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    printf("value config_magic %lld\n", (long long)config.magic);
    VALUE(ncclSuccess); VALUE(ncclUnhandledCudaError); VALUE(ncclSystemError); VALUE(ncclInternalError);
    VALUE(ncclInvalidArgument); VALUE(ncclInvalidUsage); VALUE(ncclRemoteError); VALUE(ncclInProgress);
    VALUE(ncclTimeout); VALUE(ncclNumResults);
    VALUE(ncclInt8); VALUE(ncclUint8); VALUE(ncclInt32); VALUE(ncclUint32); VALUE(ncclInt64); VALUE(ncclUint64);
    VALUE(ncclFloat16); VALUE(ncclFloat32); VALUE(ncclFloat64); VALUE(ncclBfloat16); VALUE(ncclFloat8e4m3);
    VALUE(ncclFloat8e5m2); VALUE(ncclNumTypes);
    VALUE(ncclSum); VALUE(ncclProd); VALUE(ncclMax); VALUE(ncclMin); VALUE(ncclAvg); VALUE(ncclNumOps);
    VALUE(ncclScalarDevice); VALUE(ncclScalarHostImmediate);
    VALUE(ncclStatGpuMemSuspend); VALUE(ncclStatGpuMemSuspended); VALUE(ncclStatGpuMemPersist);
    VALUE(ncclStatGpuMemTotal);
    return 0;
}
