/* Produce or consume through librdkafka, which is loaded at run time: the one that comes inside the
 * confluent-kafka wheel, so no header and no package is needed.
 *
 *   rdkafka LIBRARY produce ADDRESS TOPIC --size 1000 --warmup 2 --seconds 5 [KEY=VALUE]...
 *   rdkafka LIBRARY fill    ADDRESS TOPIC --size 1000 --messages 100000 [KEY=VALUE]...
 *   rdkafka LIBRARY consume ADDRESS TOPIC --partitions 4 --messages 100000 [KEY=VALUE]...
 *
 * Prints "begin" and "end" around what is measured, then one line of JSON. Messages of `produce`
 * are counted when they are acked, those of `consume` when they are handed over, after the first
 * batch of them.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCER, CONSUMER };                    /* rd_kafka_type_t */
enum { CONF_OK = 0 };                           /* rd_kafka_conf_res_t */
enum { COPY = 2 };                              /* message flags */
enum { ANY_PARTITION = -1, BEGINNING = -2 };
enum { BATCH = 10000 };

/* What librdkafka hands over for each message; its public layout. */
struct message {
    int error;
    void *topic;
    int32_t partition;
    void *payload;
    size_t size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *private_data;
};

static struct {
    void *(*conf_new)(void);
    int (*conf_set)(void *, const char *, const char *, char *, size_t);
    void (*conf_set_dr_msg_cb)(void *, void (*)(void *, const struct message *, void *));
    void *(*new)(int, void *, char *, size_t);
    void *(*topic_new)(void *, const char *, void *);
    int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
    int (*poll)(void *, int);
    int (*flush)(void *, int);
    void *(*list_new)(int);
    void *(*list_add)(void *, const char *, int32_t);
    int (*list_set_offset)(void *, const char *, int32_t, int64_t);
    int (*assign)(void *, const void *);
    int (*poll_set_consumer)(void *);
    void *(*queue_get_consumer)(void *);
    ssize_t (*consume_batch_queue)(void *, int, struct message **, size_t);
    void (*message_destroy)(struct message *);
} rd;

struct options {
    const char *mode, *address, *topic;
    int partitions, size;
    long messages;
    double warmup, seconds;
    char **settings;
    int setting_count;
};

static uint64_t acked, failed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s: not in the library\n", name);
        exit(2);
    }
    return found;
}

static void load_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    rd.conf_new = find(library, "rd_kafka_conf_new");
    rd.conf_set = find(library, "rd_kafka_conf_set");
    rd.conf_set_dr_msg_cb = find(library, "rd_kafka_conf_set_dr_msg_cb");
    rd.new = find(library, "rd_kafka_new");
    rd.topic_new = find(library, "rd_kafka_topic_new");
    rd.produce = find(library, "rd_kafka_produce");
    rd.poll = find(library, "rd_kafka_poll");
    rd.flush = find(library, "rd_kafka_flush");
    rd.list_new = find(library, "rd_kafka_topic_partition_list_new");
    rd.list_add = find(library, "rd_kafka_topic_partition_list_add");
    rd.list_set_offset = find(library, "rd_kafka_topic_partition_list_set_offset");
    rd.assign = find(library, "rd_kafka_assign");
    rd.poll_set_consumer = find(library, "rd_kafka_poll_set_consumer");
    rd.queue_get_consumer = find(library, "rd_kafka_queue_get_consumer");
    rd.consume_batch_queue = find(library, "rd_kafka_consume_batch_queue");
    rd.message_destroy = find(library, "rd_kafka_message_destroy");
}

static void set(void *conf, const char *key, const char *value) {
    char error[256];
    if (rd.conf_set(conf, key, value, error, sizeof error) != CONF_OK) {
        fprintf(stderr, "%s=%s: %s\n", key, value, error);
        exit(2);
    }
}

static void delivered(void *client, const struct message *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->error)
        failed++;
    else
        acked++;
}

static void *make_client(int type, const struct options *o) {
    char error[256];
    void *conf = rd.conf_new();
    set(conf, "bootstrap.servers", o->address);
    if (type == PRODUCER)
        rd.conf_set_dr_msg_cb(conf, delivered);
    for (int i = 0; i < o->setting_count; i++) {
        char pair[256];
        snprintf(pair, sizeof pair, "%s", o->settings[i]);
        char *value = strchr(pair, '=');
        *value++ = 0;
        set(conf, pair, value);
    }
    void *client = rd.new(type, conf, error, sizeof error);
    if (!client) {
        fprintf(stderr, "%s\n", error);
        exit(2);
    }
    return client;
}

/* `in_all`: with what was acked between "end" and the end of the flush. */
static void print(uint64_t messages, uint64_t in_all, int size, double seconds) {
    struct timespec own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    printf("{\"messages\": %lu, \"messages_in_all\": %lu, \"bytes\": %lu, \"errors\": %lu, \"seconds\": %.4f, "
           "\"messages_per_s\": %.1f, \"mb_per_s\": %.2f, \"driver_cpu_s\": %.3f}\n",
           messages, in_all, messages * (uint64_t)size, failed, seconds, (double)messages / seconds,
           (double)messages * size / seconds / 1e6, own.tv_sec + own.tv_nsec * 1e-9);
    fflush(stdout);
}

/* Hand over messages until `limit` of them or until `end`, whichever there is. */
static void produce_until(void *client, void *topic, const struct options *o, double end,
                          long limit) {
    static uint8_t payload[1 << 20];
    static int made;
    for (size_t i = 0; !made && i < sizeof payload; i++)
        payload[i] = (uint8_t)rand();
    made = 1;
    for (long sent = 0; limit ? sent < limit : now() < end;) {
        for (int i = 0; i < 1000 && (!limit || sent < limit); i++) {
            void *at = payload + (sent * 61) % (long)(sizeof payload - (size_t)o->size);
            if (rd.produce(topic, ANY_PARTITION, COPY, at, (size_t)o->size, NULL, 0, NULL)) {
                rd.poll(client, 5); /* the queue is full */
                break;
            }
            sent++;
        }
        rd.poll(client, 0);
    }
}

static void run_producer(const struct options *o) {
    void *client = make_client(PRODUCER, o);
    void *topic = rd.topic_new(client, o->topic, NULL);
    int by_time = strcmp(o->mode, "fill");
    if (by_time)
        produce_until(client, topic, o, now() + o->warmup, 0);
    say("begin");
    uint64_t before = acked;
    double began = now();
    produce_until(client, topic, o, began + o->seconds, by_time ? 0 : o->messages);
    if (!by_time)
        rd.flush(client, 120000);
    uint64_t messages = acked - before;
    double seconds = now() - began;
    say("end");
    rd.flush(client, 60000);
    print(messages, acked - before, o->size, seconds);
}

static void run_consumer(const struct options *o) {
    static struct message *batch[BATCH];
    void *client = make_client(CONSUMER, o);
    rd.poll_set_consumer(client);
    void *list = rd.list_new(o->partitions);
    for (int i = 0; i < o->partitions; i++) {
        rd.list_add(list, o->topic, i);
        rd.list_set_offset(list, o->topic, i, BEGINNING);
    }
    void *queue = rd.queue_get_consumer(client);
    long messages = 0, first = 0;
    size_t size = 0;
    say("begin");
    double began = 0, last = now();
    rd.assign(client, list);
    while (messages < o->messages && now() - last < 20) {
        ssize_t got = rd.consume_batch_queue(queue, 100, batch, BATCH);
        for (ssize_t i = 0; i < got; i++) {
            if (!batch[i]->error) {
                messages++;
                size = batch[i]->size;
            }
            rd.message_destroy(batch[i]);
        }
        if (got <= 0)
            continue;
        last = now();
        if (!began) {
            began = last; /* connecting and looking up leaders is not what is asked */
            first = messages;
        }
    }
    say("end");
    failed = (uint64_t)(o->messages - messages);
    print((uint64_t)(messages - first), (uint64_t)messages, (int)size, last - began);
}

int main(int count, char **words) {
    if (count < 5) {
        fprintf(stderr, "usage: rdkafka LIBRARY MODE ADDRESS TOPIC [--NAME VALUE]... [KEY=VALUE]...\n");
        return 2;
    }
    struct options o = {.mode = words[2], .address = words[3], .topic = words[4], .partitions = 1,
                        .size = 100, .messages = 1000, .warmup = 1, .seconds = 3};
    int at = 5;
    for (; at + 1 < count && !strncmp(words[at], "--", 2); at += 2) {
        const char *name = words[at];
        double value = atof(words[at + 1]);
        if (!strcmp(name, "--partitions")) o.partitions = (int)value;
        else if (!strcmp(name, "--size")) o.size = (int)value;
        else if (!strcmp(name, "--messages")) o.messages = (long)value;
        else if (!strcmp(name, "--warmup")) o.warmup = value;
        else if (!strcmp(name, "--seconds")) o.seconds = value;
        else { fprintf(stderr, "unknown option %s\n", name); return 2; }
    }
    o.settings = words + at;
    o.setting_count = count - at;
    load_library(words[1]);
    if (!strcmp(o.mode, "consume"))
        run_consumer(&o);
    else
        run_producer(&o);
    _exit(0); /* closing a client waits for its threads; there is nothing left to wait for */
}
