/* A oneDNN whose code generator fails at some primitives and keeps the error in a thread-local variable, as Xbyak does.
 *
 * Everything but the two functions below is the real library's, which this one is linked to.
 *
 *     STICKY_KIND     the number of the primitive kind at which code generation fails (dnnl_primitive_kind_t)
 *     STICKY_IMPL     a part of the names of the implementations that fail; empty for all
 *     STICKY_ONCE     if set, only the first attempt fails
 *     STICKY_REAL     the file of the real library
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { success = 0, runtime_error = 5, query_kind = 2, query_impl = 8, most_spoiled = 4096 };

int dnnl_primitive_desc_query(const void *, int, int, void *);

static __thread int has_error;
static int failures;
static void *spoiled[most_spoiled];
static int spoiled_count;

static void *real(const char *name) {
    void *library = dlopen(getenv("STICKY_REAL"), RTLD_LAZY | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "no real %s\n", name);
        abort();
    }
    return function;
}

static int fails(const void *descriptor, const char *impl) {
    int kind = 0;
    dnnl_primitive_desc_query(descriptor, query_kind, 0, &kind);
    if (kind != atoi(getenv("STICKY_KIND")) || !strstr(impl, getenv("STICKY_IMPL")))
        return 0;
    return __sync_fetch_and_add(&failures, 1) == 0 || !getenv("STICKY_ONCE");
}

int dnnl_primitive_create(void **primitive, const void *descriptor) {
    int (*create)(void **, const void *) = real("dnnl_primitive_create");
    const char *impl = "";
    dnnl_primitive_desc_query(descriptor, query_impl, 0, &impl);
    if (!has_error && fails(descriptor, impl))
        has_error = 1;
    int generates = !strstr(impl, "ref") && !strstr(impl, "simple");
    if (has_error && (generates || fails(descriptor, impl)))
        return runtime_error;
    int status = create(primitive, descriptor);
    if (status == success && has_error)
        spoiled[__sync_fetch_and_add(&spoiled_count, 1) % most_spoiled] = *primitive;
    return status;
}

int dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *arguments) {
    int (*execute)(const void *, void *, int, const void *) = real("dnnl_primitive_execute");
    for (int i = 0; i < spoiled_count && i < most_spoiled; ++i)
        if (spoiled[i] == primitive) {
            fprintf(stderr, "a primitive is executed that was created beside an error\n");
            abort();
        }
    return execute(primitive, stream, count, arguments);
}
