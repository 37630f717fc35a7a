/* A list of commands -> one finished command buffer, in one call.
 *
 * Nothing is linked against: the caller hands over wgpu-native's functions, whose signatures are those of
 * webgpu.h. Handles are opaque, and so are descriptors, which the caller fills in. src/pteron/gpu/encode.py
 * does the same step by step, and lays out the same structures.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Raised with every change of a structure or a signature: a library of another version is not used. */
#define VERSION 2

typedef struct {
    void *(*create_encoder)(void *device, const void *descriptor);
    void *(*begin_pass)(void *encoder, const void *descriptor);
    void (*set_pipeline)(void *pass, void *pipeline);
    void (*set_bind_group)(void *pass, uint32_t index, void *group, size_t offset_count, const uint32_t *offsets);
    void (*dispatch)(void *pass, uint32_t x, uint32_t y, uint32_t z);
    void (*end_pass)(void *pass);
    void (*release_pass)(void *pass);
    void (*copy)(void *encoder, void *source, uint64_t source_offset, void *target, uint64_t target_offset,
                 uint64_t size);
    void *(*finish)(void *encoder, const void *descriptor);
    void (*release_encoder)(void *encoder);
} Functions;

typedef struct {
    void *pipeline;
    void *group;
    uint32_t x, y, z, unused;
} Step;

/* Steps where there are any, else a copy. */
typedef struct {
    const Step *steps;
    uint64_t step_count;
    const void *pass; /* what a pass that these steps open is begun with; may be null */
    void *source;
    void *target;
    uint64_t source_offset, target_offset, size;
} Command;

EXPORTED uint32_t pteron_encode_version(void) { return VERSION; }

static void encode(const Functions *wgpu, void *pass, const Command *command) {
    const Step *end = command->steps + command->step_count;
    for (const Step *step = command->steps; step < end; step++) {
        wgpu->set_pipeline(pass, step->pipeline);
        wgpu->set_bind_group(pass, 0, step->group, 0, NULL);
        wgpu->dispatch(pass, step->x, step->y, step->z);
    }
}

static void end(const Functions *wgpu, void **pass) {
    if (*pass) {
        wgpu->end_pass(*pass);
        wgpu->release_pass(*pass);
        *pass = NULL;
    }
}

/* The command buffer, to be released by the caller. Steps that follow one another share a pass. Errors arrive
 * where wgpu-native reports them, on this thread: with any, the command buffer must not be submitted. */
EXPORTED void *pteron_record(const Functions *wgpu, void *device, const Command *commands, size_t count) {
    void *encoder = wgpu->create_encoder(device, NULL);
    void *pass = NULL;
    for (const Command *command = commands; command < commands + count; command++) {
        if (command->step_count) {
            if (!pass)
                pass = wgpu->begin_pass(encoder, command->pass);
            encode(wgpu, pass, command);
        } else {
            end(wgpu, &pass); /* copies cannot stand inside a pass */
            wgpu->copy(encoder, command->source, command->source_offset, command->target,
                       command->target_offset, command->size);
        }
    }
    end(wgpu, &pass);
    void *finished = wgpu->finish(encoder, NULL);
    wgpu->release_encoder(encoder);
    return finished;
}

#ifdef _WIN32
/* What Windows calls when it loads a library that brings no C runtime. */
EXPORTED int DllMainCRTStartup(void *library, uint32_t reason, void *reserved) {
    (void)library, (void)reason, (void)reserved;
    return 1;
}
#endif
