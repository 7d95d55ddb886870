/* The limit that ppsim is measured against: the same model as straight C over arrays.
   1F1B's queues are emitted op by op; the longest path keeps one end time per (direction, stage, microbatch),
   and runs every device as far as it goes, waking those that wait for it. */
#include <stdint.h>
#include <stdlib.h>

enum { F, B, I, W };

typedef struct {
    int32_t devices, stages, microbatches;
    const int32_t *place;   /* device of each stage */
    const int64_t *offsets; /* devices + 1 */
    const uint8_t *kind;
    const int32_t *stage, *microbatch, *pair;
    const double *time; /* 4 x stages */
    double comm;
} Pipeline;

void one_f_one_b(int32_t P, int32_t M, int64_t *offsets, uint8_t *kind, int32_t *stage, int32_t *microbatch,
                 int32_t *pair)
{
    int64_t i = 0;
    for (int32_t d = 0; d < P; d++) {
        int32_t warm_up = P - d - 1 < M ? P - d - 1 : M;
        int32_t forward = 0, backward = 0;
        offsets[d] = i;
        while (backward < M) {
            int is_forward = forward < M && forward - backward <= warm_up;
            kind[i] = is_forward ? F : B;
            stage[i] = d;
            microbatch[i] = is_forward ? forward++ : backward++;
            pair[i++] = -1;
        }
    }
    offsets[P] = i;
}

/* The cell whose end an op waits for, in a table of forwards followed by one of backwards; -1 for none. */
static inline int64_t needed(const Pipeline *p, int64_t op, int32_t *owner)
{
    int64_t M = p->microbatches, cells = (int64_t)p->stages * M, s = p->stage[op], m = p->microbatch[op];
    switch (p->kind[op]) {
    case F:
        if (s == 0)
            return -1;
        *owner = p->place[s - 1];
        return (s - 1) * M + m;
    case W:
        *owner = p->place[s];
        return cells + s * M + m;
    default:
        if (s == p->stages - 1) {
            *owner = p->place[s];
            return s * M + m;
        }
        *owner = p->place[s + 1];
        return cells + (s + 1) * M + m;
    }
}

/* Start and end of every op; returns how many ran. */
int64_t longest_path(const Pipeline *p, double *start, double *end)
{
    int64_t cells = (int64_t)p->stages * p->microbatches, ran = 0;
    int32_t P = p->devices, depth = 0;
    double *done = malloc(2 * cells * sizeof *done), *free_at = calloc(P, sizeof *free_at);
    int64_t *head = malloc(P * sizeof *head);
    int32_t *first = malloc(P * sizeof *first), *next = malloc(P * sizeof *next);
    int32_t *ready = malloc(P * sizeof *ready);
    int64_t *wanted = malloc(P * sizeof *wanted);
    for (int64_t c = 0; c < 2 * cells; c++)
        done[c] = -1;
    for (int32_t d = P - 1; d >= 0; d--) {
        head[d] = p->offsets[d];
        first[d] = -1;
        ready[depth++] = d;
    }
    while (depth) {
        int32_t d = ready[--depth], awaited = -1;
        int64_t i = head[d], stop = p->offsets[d + 1];
        double now = free_at[d];
        while (i < stop) {
            int64_t last = p->pair[i] < 0 ? i : i + 1;
            double begin = now, length = 0;
            for (int64_t op = i; op <= last; op++) {
                int32_t owner = d;
                int64_t cell = needed(p, op, &owner);
                length += p->time[p->kind[op] * p->stages + p->stage[op]];
                if (cell < 0)
                    continue;
                if (done[cell] < 0) {
                    awaited = owner;
                    wanted[d] = cell;
                    break;
                }
                double arrival = done[cell] + (owner == d ? 0 : p->comm);
                begin = arrival > begin ? arrival : begin;
            }
            if (awaited >= 0)
                break;
            now = begin + length;
            for (int64_t op = i; op <= last; op++) {
                start[op] = begin;
                end[op] = now;
                if (p->kind[op] != W)
                    done[(p->kind[op] ? cells : 0) + (int64_t)p->stage[op] * p->microbatches + p->microbatch[op]] = now;
            }
            ran += last + 1 - i;
            i = last + 1;
        }
        head[d] = i;
        free_at[d] = now;
        if (awaited >= 0) {
            next[d] = first[awaited];
            first[awaited] = d;
        }
        for (int32_t *link = &first[d]; *link >= 0;) {
            int32_t waiter = *link;
            if (done[wanted[waiter]] < 0) {
                link = &next[waiter];
                continue;
            }
            *link = next[waiter];
            ready[depth++] = waiter;
        }
    }
    free(done), free(free_at), free(head), free(first), free(next), free(ready), free(wanted);
    return ran;
}
