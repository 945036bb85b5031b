/* Produce or consume through librdkafka, which is loaded at run time: the one that comes inside the
 * confluent-kafka wheel, so no header and no package is needed.
 *
 *   rdkafka LIBRARY produce ADDRESS TOPIC --size 1000 --warmup 2 --seconds 5 [KEY=VALUE]...
 *   rdkafka LIBRARY fill    ADDRESS TOPIC --size 1000 --messages 100000 [KEY=VALUE]...
 *   rdkafka LIBRARY burst   ADDRESS TOPIC --size 1000 --messages 100000 [KEY=VALUE]...
 *   rdkafka LIBRARY consume ADDRESS TOPIC --partitions 4 --messages 100000 [KEY=VALUE]...
 *   rdkafka LIBRARY through ADDRESS TOPIC --partitions 1 --size 100 --rate 1000 --seconds 5 [K=V]...
 *   rdkafka LIBRARY groups  ADDRESS TOPIC --partitions 2 --groups 50 --members 2 [KEY=VALUE]...
 *   rdkafka LIBRARY producers ADDRESS TOPIC --producers 9 --messages 1 --seconds 5 [KEY=VALUE]...
 *
 * Prints "begin" and "end" around what is measured, then one line of JSON. Messages of `produce`
 * are counted when they are acked, those of `consume` when they are handed over, after the first
 * batch of them. `burst` is `fill` by a producer that has sent before. `through` is a producer at a
 * fixed rate and a consumer of its messages, which say when they were handed over; a KEY is the
 * producer's if it begins with "p:", the consumer's if with "c:". `groups` (named by group.id and a
 * number) is measured from the first subscription until every member has its part of the topic.
 * `producers`: each sends so many messages, waits until they are acked, and begins again (0: never
 * waits). With a transactional.id, to which a number is added, it commits instead of waiting.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCER, CONSUMER };                    /* rd_kafka_type_t */
enum { CONF_OK = 0 };                           /* rd_kafka_conf_res_t */
enum { COPY = 2 };                              /* message flags */
enum { ANY_PARTITION = -1, END = -1, BEGINNING = -2 };
enum { BATCH = 10000, WARMING = 2000, CLIENTS_MAX = 1000 };
static const double PATIENCE_S = 20;

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

/* A list of partitions; its public layout begins like this. */
struct list {
    int count;
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
    struct message *(*consumer_poll)(void *, int);
    int (*subscribe)(void *, const void *);
    int (*assignment)(void *, struct list **);
    void (*list_destroy)(void *);
    void *(*init_transactions)(void *, int);
    void *(*begin_transaction)(void *);
    void *(*commit_transaction)(void *, int);
    const char *(*error_string)(const void *);
} rd;

struct options {
    const char *mode, *address, *topic;
    int partitions, size, groups, members, producers;
    long messages;
    double warmup, seconds, rate;
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
    rd.consumer_poll = find(library, "rd_kafka_consumer_poll");
    rd.subscribe = find(library, "rd_kafka_subscribe");
    rd.assignment = find(library, "rd_kafka_assignment");
    rd.list_destroy = find(library, "rd_kafka_topic_partition_list_destroy");
    rd.init_transactions = find(library, "rd_kafka_init_transactions");
    rd.begin_transaction = find(library, "rd_kafka_begin_transaction");
    rd.commit_transaction = find(library, "rd_kafka_commit_transaction");
    rd.error_string = find(library, "rd_kafka_error_string");
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
    __atomic_fetch_add(message->error ? &failed : &acked, 1, __ATOMIC_RELAXED);
}

/* `group`: what is put behind the name of the group or the transactional id, or NULL. */
static void *make_client(int type, const struct options *o, const char *group) {
    char error[256];
    void *conf = rd.conf_new();
    set(conf, "bootstrap.servers", o->address);
    if (type == PRODUCER)
        rd.conf_set_dr_msg_cb(conf, delivered);
    for (int i = 0; i < o->setting_count; i++) {
        char pair[256];
        snprintf(pair, sizeof pair, "%s", o->settings[i]);
        char *key = pair, *value = strchr(pair, '=');
        *value++ = 0;
        if (key[1] == ':') {
            if (*key != (type == PRODUCER ? 'p' : 'c'))
                continue;
            key += 2;
        }
        if (group && (!strcmp(key, "group.id") || !strcmp(key, "transactional.id")))
            strncat(value, group, sizeof pair - 1 - (size_t)(value - pair) - strlen(value));
        set(conf, key, value);
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
    void *client = make_client(PRODUCER, o, NULL);
    void *topic = rd.topic_new(client, o->topic, NULL);
    int by_time = !strcmp(o->mode, "produce");
    if (by_time)
        produce_until(client, topic, o, now() + o->warmup, 0);
    if (!strcmp(o->mode, "burst")) {
        produce_until(client, topic, o, 0, WARMING);
        rd.flush(client, 60000);
    }
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

static void *all_partitions(const struct options *o, int64_t from) {
    void *list = rd.list_new(o->partitions);
    for (int i = 0; i < o->partitions; i++) {
        rd.list_add(list, o->topic, i);
        rd.list_set_offset(list, o->topic, i, from);
    }
    return list;
}

static void run_consumer(const struct options *o) {
    static struct message *batch[BATCH];
    void *client = make_client(CONSUMER, o, NULL);
    rd.poll_set_consumer(client);
    void *list = all_partitions(o, BEGINNING);
    void *queue = rd.queue_get_consumer(client);
    long messages = 0, first = 0;
    size_t size = 0;
    say("begin");
    double began = 0, last = now();
    rd.assign(client, list);
    while (messages < o->messages && now() - last < PATIENCE_S) {
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
    failed = messages < o->messages ? (uint64_t)(o->messages - messages) : 0;
    print((uint64_t)(messages - first), (uint64_t)messages, (int)size, last - began);
}

/* --- through: a producer at a fixed rate and a consumer of the same messages ---------------- */

struct stamp {
    double time;
    uint64_t counts; /* 0 while warming */
};

static struct {
    void *queue;
    float *latencies;
    size_t room;
    volatile size_t counted;
    volatile uint64_t received;
} reader;

static void *read_all(void *unused) {
    static struct message *batch[BATCH];
    (void)unused;
    for (;;) {
        ssize_t got = rd.consume_batch_queue(reader.queue, 1000, batch, 100);
        double time = now();
        for (ssize_t i = 0; i < got; i++) {
            struct stamp stamp;
            if (!batch[i]->error && batch[i]->size >= sizeof stamp) {
                memcpy(&stamp, batch[i]->payload, sizeof stamp);
                if (stamp.counts && reader.counted < reader.room)
                    reader.latencies[reader.counted++] = (float)(time - stamp.time);
                reader.received++;
            }
            rd.message_destroy(batch[i]);
        }
    }
    return NULL;
}

/* The time is that of the first try: a full queue makes a message late. */
static void send_stamped(void *client, void *topic, const struct options *o, int counts) {
    static uint8_t payload[1 << 16];
    struct stamp stamp = {now(), (uint64_t)counts};
    memcpy(payload, &stamp, sizeof stamp);
    while (rd.produce(topic, ANY_PARTITION, COPY, payload, (size_t)o->size, NULL, 0, NULL))
        rd.poll(client, 1);
}

static uint64_t send_at_rate(void *client, void *topic, const struct options *o, double seconds,
                             int counts) {
    double began = now();
    uint64_t sent = 0;
    while (now() - began < seconds) {
        while ((double)sent < (now() - began) * o->rate) {
            send_stamped(client, topic, o, counts);
            sent++;
        }
        rd.poll(client, 0);
        double left = began + (double)sent / o->rate - now();
        if (left > 0)
            usleep((useconds_t)(left * 1e6));
    }
    return sent;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(double part) {
    size_t at = (size_t)((double)reader.counted * part);
    return reader.counted ? reader.latencies[at < reader.counted ? at : reader.counted - 1] * 1e3 : 0;
}

static void run_through(const struct options *o) {
    pthread_t thread;
    void *consumer = make_client(CONSUMER, o, NULL);
    rd.poll_set_consumer(consumer);
    reader.queue = rd.queue_get_consumer(consumer);
    reader.room = (size_t)(o->rate * o->seconds) + 1000;
    reader.latencies = malloc(reader.room * sizeof *reader.latencies);
    rd.assign(consumer, all_partitions(o, END));
    pthread_create(&thread, NULL, read_all, NULL);
    void *client = make_client(PRODUCER, o, NULL);
    void *topic = rd.topic_new(client, o->topic, NULL);
    double began = now();
    while (!reader.received && now() - began < PATIENCE_S) { /* until it knows where the end is */
        send_stamped(client, topic, o, 0);
        rd.poll(client, 10);
    }
    send_at_rate(client, topic, o, o->warmup, 0);
    say("begin");
    began = now();
    uint64_t sent = send_at_rate(client, topic, o, o->seconds, 1);
    double seconds = now() - began, last = now();
    say("end");
    for (size_t seen = 0; reader.counted < sent && now() - last < PATIENCE_S; usleep(1000)) {
        rd.poll(client, 0);
        if (reader.counted != seen) {
            seen = reader.counted;
            last = now();
        }
    }
    struct timespec own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    failed += sent - reader.counted;
    qsort(reader.latencies, reader.counted, sizeof *reader.latencies, by_size);
    printf("{\"messages\": %lu, \"messages_in_all\": %lu, \"bytes\": %lu, \"errors\": %lu, "
           "\"seconds\": %.4f, \"messages_per_s\": %.1f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
           "\"max_ms\": %.4f, \"driver_cpu_s\": %.3f}\n",
           sent, sent, sent * (uint64_t)o->size, failed, seconds, (double)sent / seconds,
           percentile(0.5), percentile(0.99), percentile(1.0), own.tv_sec + own.tv_nsec * 1e-9);
    fflush(stdout);
}

/* --- groups: until every member of every group has its part --------------------------------- */

static int has_part(void *client, int part) {
    struct list *list = NULL;
    if (rd.assignment(client, &list) || !list)
        return 0;
    int count = list->count;
    rd.list_destroy(list);
    return count == part;
}

static void run_groups(const struct options *o) {
    static void *clients[CLIENTS_MAX];
    int count = o->groups * o->members, part = o->partitions / o->members, settled = 0;
    if (count > CLIENTS_MAX) {
        fprintf(stderr, "too many members\n");
        exit(2);
    }
    void *list = rd.list_new(1);
    rd.list_add(list, o->topic, ANY_PARTITION);
    for (int i = 0; i < count; i++) {
        char group[32];
        snprintf(group, sizeof group, "-%d", i / o->members);
        clients[i] = make_client(CONSUMER, o, group);
        rd.poll_set_consumer(clients[i]);
    }
    usleep(500000); /* a hundred clients start threads; that is nobody's */
    say("begin");
    double began = now(), seconds = 0;
    for (int i = 0; i < count; i++)
        rd.subscribe(clients[i], list);
    while (settled < count && now() - began < 3 * PATIENCE_S) {
        settled = 0;
        for (int i = 0; i < count; i++) {
            struct message *message = rd.consumer_poll(clients[i], 0);
            if (message)
                rd.message_destroy(message);
            settled += has_part(clients[i], part);
        }
        seconds = now() - began;
        usleep(2000);
    }
    say("end");
    printf("{\"messages\": %d, \"bytes\": %d, \"errors\": %d, \"seconds\": %.4f, "
           "\"stable_s\": %.4f}\n", count, count, count - settled, seconds, seconds);
    fflush(stdout);
}

/* --- many producers, transactions ------------------------------------------------------------ */

enum { ROUNDS_MAX = 200000, PRODUCERS_MAX = 256 };

struct producer {
    const struct options *o;
    void *client;
    int transactional;
    double begin, end; /* of what is measured */
    uint64_t rounds;
    float *latencies; /* in ms: of a commit, or from the first message to the last ack */
};

static void check(void *error, const char *call) {
    if (error) {
        fprintf(stderr, "%s: %s\n", call, rd.error_string(error));
        exit(2);
    }
}

static void *send_rounds(void *argument) {
    struct producer *p = argument;
    static uint8_t payload[1 << 16];
    void *topic = rd.topic_new(p->client, p->o->topic, NULL);
    while (now() < p->end) {
        if (p->transactional)
            check(rd.begin_transaction(p->client), "begin_transaction");
        double began = now();
        for (long sent = 0; sent < p->o->messages;) {
            if (rd.produce(topic, ANY_PARTITION, COPY, payload, (size_t)p->o->size, NULL, 0, NULL))
                rd.poll(p->client, 5); /* the queue is full */
            else
                sent++;
        }
        if (p->transactional) {
            began = now();
            check(rd.commit_transaction(p->client, 60000), "commit_transaction");
            rd.poll(p->client, 0);
        } else
            rd.flush(p->client, 60000);
        double ended = now();
        if (began >= p->begin && ended <= p->end && p->rounds < ROUNDS_MAX)
            p->latencies[p->rounds++] = (float)((ended - began) * 1000);
    }
    return NULL;
}

static void *send_without_waiting(void *argument) {
    struct producer *p = argument;
    produce_until(p->client, rd.topic_new(p->client, p->o->topic, NULL), p->o, p->end, 0);
    return NULL;
}

static int by_time(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int is_transactional(const struct options *o) {
    for (int i = 0; i < o->setting_count; i++)
        if (!strncmp(o->settings[i], "transactional.id=", 17))
            return 1;
    return 0;
}

static void run_producers(const struct options *o) {
    static struct producer all[PRODUCERS_MAX];
    pthread_t threads[PRODUCERS_MAX];
    int transactional = is_transactional(o);
    if (o->producers > PRODUCERS_MAX) {
        fprintf(stderr, "too many producers\n");
        exit(2);
    }
    for (int i = 0; i < o->producers; i++) {
        char number[16];
        snprintf(number, sizeof number, "-%d", i);
        all[i].o = o;
        all[i].transactional = transactional;
        all[i].client = make_client(PRODUCER, o, number);
        all[i].latencies = malloc(ROUNDS_MAX * sizeof(float));
        if (transactional)
            check(rd.init_transactions(all[i].client, 60000), "init_transactions");
    }
    double begin = now() + o->warmup, end = begin + o->seconds;
    for (int i = 0; i < o->producers; i++) {
        all[i].begin = begin, all[i].end = end;
        pthread_create(&threads[i], NULL, o->messages ? send_rounds : send_without_waiting,
                       &all[i]);
    }
    usleep((useconds_t)(o->warmup * 1e6));
    say("begin");
    uint64_t before = acked;
    usleep((useconds_t)((end - now()) * 1e6));
    uint64_t messages = acked - before, rounds = 0;
    double seconds = now() - begin;
    say("end");
    float *latencies = malloc(sizeof(float) * ROUNDS_MAX * (size_t)o->producers);
    for (int i = 0; i < o->producers; i++) {
        pthread_join(threads[i], NULL);
        memcpy(latencies + rounds, all[i].latencies, all[i].rounds * sizeof(float));
        rounds += all[i].rounds;
    }
    qsort(latencies, rounds, sizeof(float), by_time);
    struct timespec own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    printf("{\"messages\": %lu, \"requests\": %lu, \"bytes\": %lu, \"errors\": %lu, "
           "\"seconds\": %.4f, \"messages_per_s\": %.1f, \"mb_per_s\": %.2f, "
           "\"driver_cpu_s\": %.3f",
           messages, rounds, messages * (uint64_t)o->size, failed, seconds,
           (double)messages / seconds, (double)messages * o->size / seconds / 1e6,
           own.tv_sec + own.tv_nsec * 1e-9);
    if (rounds)
        printf(", \"%s\": %.1f, \"p50_ms\": %.4f, \"p99_ms\": %.4f",
               transactional ? "commits_per_s" : "requests_per_s", (double)rounds / seconds,
               latencies[rounds / 2], latencies[rounds * 99 / 100]);
    puts("}");
    fflush(stdout);
}

int main(int count, char **words) {
    if (count < 5) {
        fprintf(stderr, "usage: rdkafka LIBRARY MODE ADDRESS TOPIC [--NAME VALUE]... [KEY=VALUE]...\n");
        return 2;
    }
    struct options o = {.mode = words[2], .address = words[3], .topic = words[4], .partitions = 1,
                        .size = 100, .messages = 1000, .warmup = 1, .seconds = 3, .rate = 1000,
                        .groups = 1, .members = 1, .producers = 1};
    int at = 5;
    for (; at + 1 < count && !strncmp(words[at], "--", 2); at += 2) {
        const char *name = words[at];
        double value = atof(words[at + 1]);
        if (!strcmp(name, "--partitions")) o.partitions = (int)value;
        else if (!strcmp(name, "--size")) o.size = (int)value;
        else if (!strcmp(name, "--messages")) o.messages = (long)value;
        else if (!strcmp(name, "--warmup")) o.warmup = value;
        else if (!strcmp(name, "--seconds")) o.seconds = value;
        else if (!strcmp(name, "--rate")) o.rate = value;
        else if (!strcmp(name, "--groups")) o.groups = (int)value;
        else if (!strcmp(name, "--members")) o.members = (int)value;
        else if (!strcmp(name, "--producers")) o.producers = (int)value;
        else { fprintf(stderr, "unknown option %s\n", name); return 2; }
    }
    o.settings = words + at;
    o.setting_count = count - at;
    load_library(words[1]);
    if (!strcmp(o.mode, "consume"))
        run_consumer(&o);
    else if (!strcmp(o.mode, "through"))
        run_through(&o);
    else if (!strcmp(o.mode, "groups"))
        run_groups(&o);
    else if (!strcmp(o.mode, "producers"))
        run_producers(&o);
    else
        run_producer(&o);
    _exit(0); /* closing a client waits for its threads; there is nothing left to wait for */
}
