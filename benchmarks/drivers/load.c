/* A cheap Kafka producer load: ready-made requests from one thread, so that nearly all CPU of a
 * run is the server's.
 *
 *   load HOST:PORT TOPIC [--partitions 1] [--connections 1] [--window 1] [--records 1]
 *        [--size 100] [--warmup 1] [--seconds 3] [--acks -1]
 *
 * Every connection keeps `window` Produce v7 requests in flight, each one batch of `records`
 * records of `size` bytes, in turn over all partitions. The request is encoded and checksummed
 * once; only partition and correlation id are written into it anew (neither is covered by the
 * batch's checksum). Prints "begin" when the warm-up is over, "end", and then one line of JSON
 * about the time between.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCE = 0, VERSION = 7, INPUT_SIZE = 64 << 10, MAX_WINDOW = 4096 };
static const char CLIENT_ID[] = "load";

struct options {
    char host[64];
    int port;
    const char *topic;
    int partitions, connections, window, records, size, acks;
    double warmup, seconds;
};

struct request {
    uint8_t *bytes;
    size_t size, correlation_at, partition_at;
};

struct connection {
    int fd;
    struct request request;
    size_t sent;           /* of the request that is going out; 0: none is */
    uint32_t next, done;   /* requests begun and answered; their difference is in flight */
    double began[MAX_WINDOW];
    uint8_t input[INPUT_SIZE];
    size_t filled;
    int waits_for_room;
};

struct totals {
    uint64_t requests, errors;
    float *latencies;
    size_t count, room;
    int counting;
};

static uint32_t crc_table[256];
static unsigned next_partition;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* --- encoding ---------------------------------------------------------------------------- */

struct writer {
    uint8_t *bytes;
    size_t at;
};

static void put(struct writer *w, uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        w->bytes[w->at++] = (uint8_t)(value >> shift);
}

static void put_at(uint8_t *bytes, size_t at, uint64_t value, int size) {
    struct writer w = {bytes, at};
    put(&w, value, size);
}

static void put_text(struct writer *w, const char *text) {
    size_t size = strlen(text);
    put(w, size, 2);
    memcpy(w->bytes + w->at, text, size);
    w->at += size;
}

static void put_varint(struct writer *w, int64_t value) {
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; zigzag >= 128; zigzag >>= 7)
        w->bytes[w->at++] = (uint8_t)(zigzag | 128);
    w->bytes[w->at++] = (uint8_t)zigzag;
}

static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? (value >> 1) ^ 0x82F63B78u : value >> 1;
        crc_table[i] = value;
    }
}

static uint32_t crc32c(const uint8_t *bytes, size_t size) {
    uint32_t crc = ~0u;
    while (size--)
        crc = crc_table[(crc ^ *bytes++) & 255] ^ (crc >> 8);
    return ~crc;
}

static void put_record(struct writer *w, int number, int size) {
    uint8_t scratch[32];
    struct writer head = {scratch, 0};
    put(&head, 0, 1);           /* attributes */
    put_varint(&head, 0);       /* timestamp delta */
    put_varint(&head, number);  /* offset delta */
    put_varint(&head, -1);      /* no key */
    put_varint(&head, size);
    put_varint(w, (int64_t)head.at + size + 1);
    memcpy(w->bytes + w->at, scratch, head.at);
    w->at += head.at;
    for (int i = 0; i < size; i++)
        w->bytes[w->at++] = (uint8_t)rand();
    put_varint(w, 0); /* no headers */
}

static void put_batch(struct writer *w, int records, int size) {
    size_t start = w->at;
    uint64_t time_ms = (uint64_t)time(NULL) * 1000;
    put(w, 0, 8);                    /* base offset: the broker's */
    put(w, 0, 4);                    /* length, below */
    put(w, (uint32_t)-1, 4);         /* leader epoch */
    put(w, 2, 1);                    /* magic */
    put(w, 0, 4);                    /* checksum, below */
    size_t checked = w->at;
    put(w, 0, 2);                    /* attributes: no compression */
    put(w, (uint64_t)records - 1, 4);
    put(w, time_ms, 8);
    put(w, time_ms, 8);
    put(w, (uint64_t)-1, 8);         /* no producer id, epoch, sequence */
    put(w, (uint16_t)-1, 2);
    put(w, (uint32_t)-1, 4);
    put(w, (uint64_t)records, 4);
    for (int i = 0; i < records; i++)
        put_record(w, i, size);
    put_at(w->bytes, start + 8, w->at - start - 12, 4);
    put_at(w->bytes, checked - 4, crc32c(w->bytes + checked, w->at - checked), 4);
}

static struct request make_request(const struct options *o) {
    size_t room = 512 + strlen(o->topic) + (size_t)o->records * (o->size + 40);
    struct writer w = {malloc(room), 4};
    struct request made = {.bytes = w.bytes};
    put(&w, PRODUCE, 2);
    put(&w, VERSION, 2);
    made.correlation_at = w.at;
    put(&w, 0, 4);
    put_text(&w, CLIENT_ID);
    put(&w, (uint16_t)-1, 2);        /* no transactional id */
    put(&w, (uint16_t)o->acks, 2);
    put(&w, 30000, 4);
    put(&w, 1, 4);
    put_text(&w, o->topic);
    put(&w, 1, 4);
    made.partition_at = w.at;
    put(&w, 0, 4);
    size_t records_at = w.at;
    put(&w, 0, 4);
    put_batch(&w, o->records, o->size);
    put_at(w.bytes, records_at, w.at - records_at - 4, 4);
    put_at(w.bytes, 0, w.at - 4, 4);
    made.size = w.at;
    return made;
}

/* --- connections ------------------------------------------------------------------------- */

static void open_connection(struct connection *c, const struct options *o) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
    int on = 1;
    if (inet_pton(AF_INET, o->host, &address.sin_addr) != 1)
        fail("address");
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->request = make_request(o);
}

static void watch(int poller, struct connection *c, uint32_t number, int waits, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.u32 = number};
    c->waits_for_room = waits;
    if (epoll_ctl(poller, operation, c->fd, &event))
        fail("epoll_ctl");
}

/* Send until the window is full (0) or the socket is (1). */
static int send_requests(struct connection *c, const struct options *o) {
    struct request *r = &c->request;
    while (c->next - c->done < (uint32_t)o->window || c->sent) {
        if (c->sent == 0) {
            put_at(r->bytes, r->correlation_at, c->next, 4);
            put_at(r->bytes, r->partition_at, next_partition++ % (unsigned)o->partitions, 4);
            c->began[c->next++ % MAX_WINDOW] = now();
        }
        ssize_t sent = send(c->fd, r->bytes + c->sent, r->size - c->sent, MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            fail("send");
        if (sent > 0)
            c->sent += (size_t)sent;
        if (c->sent < r->size)
            return 1;
        c->sent = 0;
    }
    return 0;
}

static void count(struct totals *t, double latency, int error) {
    if (error)
        t->errors++;
    if (!t->counting)
        return;
    t->requests++;
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 1 << 16;
        t->latencies = realloc(t->latencies, t->room * sizeof *t->latencies);
    }
    t->latencies[t->count++] = (float)latency;
}

static uint32_t read_int32(const uint8_t *bytes) {
    uint32_t value;
    memcpy(&value, bytes, 4);
    return ntohl(value);
}

/* Answers come in order: size, correlation id, topics 1, its name, partitions 1, index, error. */
static void take_answers(struct connection *c, const struct options *o, struct totals *t) {
    size_t error_at = 4 + 4 + 4 + 2 + strlen(o->topic) + 4 + 4;
    ssize_t got = recv(c->fd, c->input + c->filled, sizeof c->input - c->filled, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        fail("the server closed a connection");
    c->filled += (size_t)got;
    size_t at = 0;
    double time = now();
    while (c->filled - at >= 4) {
        size_t whole = 4 + read_int32(c->input + at);
        if (whole < error_at + 2 || whole > sizeof c->input) {
            fprintf(stderr, "an answer of %zu bytes\n", whole);
            exit(1);
        }
        if (c->filled - at < whole)
            break;
        if (read_int32(c->input + at + 4) != c->done) {
            fprintf(stderr, "answers out of order\n");
            exit(1);
        }
        const uint8_t *error = c->input + at + error_at;
        count(t, time - c->began[c->done++ % MAX_WINDOW], error[0] | error[1]);
        at += whole;
    }
    memmove(c->input, c->input + at, c->filled - at);
    c->filled -= at;
}

/* --- the run ----------------------------------------------------------------------------- */

static void serve_until(double end, int poller, struct connection *all, const struct options *o,
                        struct totals *t) {
    struct epoll_event events[64];
    while (now() < end) {
        int ready = epoll_wait(poller, events, 64, 20);
        for (int i = 0; i < ready; i++) {
            struct connection *c = &all[events[i].data.u32];
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                take_answers(c, o, t);
            int waits = send_requests(c, o);
            if (waits != c->waits_for_room)
                watch(poller, c, events[i].data.u32, waits, EPOLL_CTL_MOD);
        }
    }
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct totals *t, double part) {
    size_t at = (size_t)((double)t->count * part);
    return t->count ? t->latencies[at < t->count ? at : t->count - 1] * 1e3 : 0;
}

static void print_totals(struct totals *t, const struct options *o, double seconds) {
    struct timespec own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    qsort(t->latencies, t->count, sizeof *t->latencies, by_size);
    double rate = (double)t->requests / seconds;
    printf("{\"requests\": %lu, \"errors\": %lu, \"seconds\": %.4f, \"requests_per_s\": %.1f, "
           "\"messages\": %lu, \"bytes\": %lu, \"p50_ms\": %.4f, \"p90_ms\": %.4f, "
           "\"p99_ms\": %.4f, \"max_ms\": %.4f, \"driver_cpu_s\": %.3f}\n",
           t->requests, t->errors, seconds, rate, t->requests * (uint64_t)o->records,
           t->requests * (uint64_t)o->records * (uint64_t)o->size, percentile(t, 0.5),
           percentile(t, 0.9), percentile(t, 0.99), percentile(t, 1.0),
           own.tv_sec + own.tv_nsec * 1e-9);
}

static struct options parse(int count, char **words) {
    struct options o = {.partitions = 1, .connections = 1, .window = 1, .records = 1,
                        .size = 100, .acks = -1, .warmup = 1, .seconds = 3};
    if (count < 3 || sscanf(words[1], "%63[^:]:%d", o.host, &o.port) != 2) {
        fprintf(stderr, "usage: load HOST:PORT TOPIC [--NAME VALUE]...\n");
        exit(2);
    }
    o.topic = words[2];
    for (int i = 3; i + 1 < count; i += 2) {
        const char *name = words[i];
        double value = atof(words[i + 1]);
        if (!strcmp(name, "--partitions")) o.partitions = (int)value;
        else if (!strcmp(name, "--connections")) o.connections = (int)value;
        else if (!strcmp(name, "--window")) o.window = (int)value;
        else if (!strcmp(name, "--records")) o.records = (int)value;
        else if (!strcmp(name, "--size")) o.size = (int)value;
        else if (!strcmp(name, "--acks")) o.acks = (int)value;
        else if (!strcmp(name, "--warmup")) o.warmup = value;
        else if (!strcmp(name, "--seconds")) o.seconds = value;
        else { fprintf(stderr, "unknown option %s\n", name); exit(2); }
    }
    if (o.window > MAX_WINDOW)
        o.window = MAX_WINDOW;
    return o;
}

int main(int count, char **words) {
    struct options o = parse(count, words);
    struct connection *all = calloc((size_t)o.connections, sizeof *all);
    struct totals totals = {0};
    int poller = epoll_create1(0);
    make_crc_table();
    for (int i = 0; i < o.connections; i++) {
        open_connection(&all[i], &o);
        watch(poller, &all[i], (uint32_t)i, send_requests(&all[i], &o), EPOLL_CTL_ADD);
    }
    serve_until(now() + o.warmup, poller, all, &o, &totals);
    puts("begin");
    fflush(stdout);
    totals.counting = 1;
    double began = now();
    serve_until(began + o.seconds, poller, all, &o, &totals);
    double seconds = now() - began;
    puts("end");
    fflush(stdout);
    print_totals(&totals, &o, seconds);
    return 0;
}
