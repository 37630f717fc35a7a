/* A libvulkan.so.1 that stands before the real one and lets chosen functions of a device fail on demand.
 *
 * `fault(name, result, after)`: the function answers `result` once `after` more calls of it have succeeded, and
 * from then on; with `result` 0 it works again. `calls(name)`: how often it was called since it was loaded.
 * All functions here take whole numbers or pointers, six at most, and return a VkResult.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);
typedef uintptr_t Word;
typedef int (*Six)(Word, Word, Word, Word, Word, Word);

typedef struct {
    const char *name;
    Six here, real;
    int result, after, calls;
} Hook;

static Hook hooks[];

static int call(Hook *hook, Word a, Word b, Word c, Word d, Word e, Word f) {
    hook->calls++;
    if (hook->result && hook->after-- <= 0)
        return hook->result;
    return hook->real(a, b, c, d, e, f);
}

#define HOOKS(DO) \
    DO(0, vkQueueSubmit) DO(1, vkWaitForFences) DO(2, vkWaitSemaphores) DO(3, vkAllocateMemory) \
    DO(4, vkCreateBuffer) DO(5, vkCreateComputePipelines) DO(6, vkBeginCommandBuffer) \
    DO(7, vkAllocateCommandBuffers) DO(8, vkCreateDescriptorPool) DO(9, vkAllocateDescriptorSets) \
    DO(10, vkMapMemory) DO(11, vkCreateShaderModule) DO(12, vkEndCommandBuffer) DO(13, vkCreateSemaphore) \
    DO(14, vkGetSemaphoreCounterValue) DO(15, vkBindBufferMemory) DO(16, vkCreateCommandPool) \
    DO(17, vkGetFenceStatus) DO(18, vkDeviceWaitIdle) DO(19, vkCreatePipelineLayout) \
    DO(20, vkCreateDescriptorSetLayout) DO(21, vkResetCommandPool) DO(22, vkCreateFence)
#define DEFINE(index, name) \
    static int here_##name(Word a, Word b, Word c, Word d, Word e, Word f) { \
        return call(&hooks[index], a, b, c, d, e, f); \
    }
#define ENTRY(index, name) {#name, here_##name, 0, 0, 0, 0},

HOOKS(DEFINE)
static Hook hooks[] = {HOOKS(ENTRY){0}};

/* Names with a suffix, as of an extension that became part of Vulkan, are the same function. */
static Hook *find(const char *name) {
    for (Hook *hook = hooks; hook->name; hook++) {
        size_t length = strlen(hook->name);
        if (!strncmp(name, hook->name, length) && (!name[length] || !strcmp(name + length, "KHR")))
            return hook;
    }
    return NULL;
}

int fault(const char *name, int result, int after) {
    Hook *hook = find(name);
    if (!hook)
        return 0;
    hook->after = after;
    hook->result = result;
    return 1;
}

int calls(const char *name) {
    Hook *hook = find(name);
    return hook ? hook->calls : -1;
}

static void *library(void) {
    static void *opened;
    if (!opened)
        opened = dlopen(getenv("PTERON_REAL_VULKAN"), RTLD_NOW | RTLD_LOCAL);
    return opened;
}

static Lookup real_of_device;

static Function device_function(void *device, const char *name) {
    Function real = real_of_device(device, name);
    Hook *hook = real ? find(name) : NULL;
    if (!hook)
        return real;
    hook->real = (Six)real;
    return (Function)hook->here;
}

Function vkGetInstanceProcAddr(void *instance, const char *name) {
    Lookup real = (Lookup)dlsym(library(), "vkGetInstanceProcAddr");
    Function found = real(instance, name);
    if (found && !strcmp(name, "vkGetDeviceProcAddr")) {
        real_of_device = (Lookup)found;
        return (Function)device_function;
    }
    return found;
}
