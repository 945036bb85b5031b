// franz-go behind lines of JSON.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"trilogue/conformance/kafka/lines"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type (
	header  = lines.Header
	record  = lines.Record
	request = lines.Request
)

// A member of a group, and what it was given.
type member struct {
	client     *kgo.Client
	lock       sync.Mutex
	partitions map[string][]int32
}

func (m *member) assigned(_ context.Context, _ *kgo.Client, more map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for topic, partitions := range more {
		m.partitions[topic] = append(m.partitions[topic], partitions...)
	}
}

func (m *member) taken(_ context.Context, _ *kgo.Client, less map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for topic, partitions := range less {
		m.partitions[topic] = slices.DeleteFunc(m.partitions[topic], func(each int32) bool {
			return slices.Contains(partitions, each)
		})
	}
}

var (
	lock    sync.Mutex
	members = map[int]*member{}
	admins  = map[string]*kadm.Client{}
	last    int
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func main() {
	lines.Serve(run)
}

func run(ctx context.Context, r *request) (any, error) {
	switch r.Do {
	case "write":
		return write(ctx, r)
	case "read":
		return read(ctx, r)
	case "share":
		return share(ctx, r)
	case "join":
		return join(r)
	case "poll":
		return poll(ctx, r)
	case "commit":
		return nil, get(r).client.CommitUncommittedOffsets(ctx)
	case "leave":
		get(r).client.Close()
		return nil, nil
	}
	return administer(ctx, r)
}

func get(r *request) *member {
	lock.Lock()
	defer lock.Unlock()
	return members[r.Of]
}

func options(r *request, more ...kgo.Opt) []kgo.Opt {
	name := r.Client
	if name == "" {
		name = "driven"
	}
	own := []kgo.Opt{
		kgo.SeedBrokers(r.Address), kgo.ClientID(name), kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
	}
	return append(own, more...)
}

// --- writing ----------------------------------------------------------------------------------

func write(ctx context.Context, r *request) (any, error) {
	more := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[r.Codec]), kgo.RequiredAcks(acks[r.Acks]),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !r.Idempotent {
		more = append(more, kgo.DisableIdempotentWrite())
	}
	if r.Transaction != "" {
		more = append(more, kgo.TransactionalID(r.Transaction))
	}
	var numbered []*kgo.Record
	partitioner := kgo.StickyKeyPartitioner(nil)
	if len(r.Records) > 0 && r.Records[0].Partition != nil {
		partitioner = kgo.ManualPartitioner()
	}
	client, err := kgo.NewClient(options(r, append(more, kgo.RecordPartitioner(partitioner))...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, each := range r.Records {
		numbered = append(numbered, asRecord(r.Topic, each))
	}
	if r.Transaction != "" {
		if err := client.BeginTransaction(); err != nil {
			return nil, err
		}
	}
	places := [][]int64{}
	for _, result := range client.ProduceSync(ctx, numbered...) {
		if result.Err != nil {
			return nil, result.Err
		}
		places = append(places, []int64{int64(result.Record.Partition), result.Record.Offset})
	}
	if r.Transaction != "" {
		return places, client.EndTransaction(ctx, kgo.TransactionEndTry(!r.Abort))
	}
	return places, nil
}

func asRecord(topic string, told record) *kgo.Record {
	made := &kgo.Record{Topic: topic, Key: told.Key, Value: told.Value}
	if told.Partition != nil {
		made.Partition = *told.Partition
	}
	if told.Timestamp != nil {
		made.Timestamp = time.UnixMilli(*told.Timestamp)
	}
	for _, each := range told.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: each.Name, Value: each.Value})
	}
	return made
}

// --- reading ----------------------------------------------------------------------------------

func asRead(told *kgo.Record) record {
	time := told.Timestamp.UnixMilli()
	read := record{
		Topic: told.Topic, Partition: &told.Partition, Offset: told.Offset,
		Key: told.Key, Value: told.Value, Headers: []header{}, Timestamp: &time,
	}
	for _, each := range told.Headers {
		read.Headers = append(read.Headers, header{Name: each.Key, Value: each.Value})
	}
	return read
}

func consuming(r *request) []kgo.Opt {
	more := []kgo.Opt{
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500 * time.Millisecond),
	}
	if r.Committed {
		more = append(more, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if r.Group == "" {
		return more
	}
	more = append(
		more, kgo.ConsumerGroup(r.Group), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
	)
	switch r.Settings["strategy"] {
	case "range":
		more = append(more, kgo.Balancers(kgo.RangeBalancer()))
	case "sticky":
		more = append(more, kgo.Balancers(kgo.StickyBalancer()))
	default:
		more = append(more, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if name := r.Settings["group.instance.id"]; name != "" {
		more = append(more, kgo.InstanceID(name))
	}
	if r.Settings["group.protocol"] == "consumer" {
		more = append(more, kgo.ServerSideBalancer())
	}
	return more
}

func read(ctx context.Context, r *request) (any, error) {
	more := append(consuming(r), kgo.ConsumeTopics(r.Topic))
	client, err := kgo.NewClient(options(r, more...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	reads := []record{}
	var last []*kgo.Record
	for len(reads) < r.Count {
		fetches := client.PollRecords(ctx, r.Count-len(reads))
		if err := fetches.Err0(); errors.Is(err, context.DeadlineExceeded) {
			break
		}
		for _, failed := range fetches.Errors() {
			return nil, fmt.Errorf("%s %d: %w", failed.Topic, failed.Partition, failed.Err)
		}
		for _, each := range fetches.Records() {
			reads = append(reads, asRead(each))
			last = append(last, each)
		}
	}
	if r.Group != "" {
		return reads, client.CommitRecords(ctx, last...)
	}
	return reads, nil
}

// --- members of groups --------------------------------------------------------------------------

// share reads as a member of a share group: it releases each record at its first delivery and accepts
// it at its second one; what it returns is the offset and the count of each delivery.
func share(ctx context.Context, r *request) (any, error) {
	client, err := kgo.NewClient(options(r, kgo.ConsumeTopics(r.Topic), kgo.ShareGroup(r.Group))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	deliveries := [][2]int64{}
	for accepted := 0; accepted < r.Count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		for _, each := range fetches.Records() {
			deliveries = append(deliveries, [2]int64{each.Offset, int64(each.DeliveryCount())})
			if each.DeliveryCount() > 1 {
				accepted++
				each.Ack(kgo.AckAccept)
			} else {
				each.Ack(kgo.AckRelease)
			}
		}
	}
	return deliveries, client.FlushAcks(ctx)
}

func join(r *request) (any, error) {
	made := &member{partitions: map[string][]int32{}}
	more := append(
		consuming(r), kgo.OnPartitionsAssigned(made.assigned),
		kgo.OnPartitionsRevoked(made.taken), kgo.OnPartitionsLost(made.taken),
	)
	if r.Pattern != "" {
		more = append(more, kgo.ConsumeRegex(), kgo.ConsumeTopics(r.Pattern))
	} else {
		more = append(more, kgo.ConsumeTopics(r.Topics...))
	}
	client, err := kgo.NewClient(options(r, more...)...)
	if err != nil {
		return nil, err
	}
	made.client = client
	lock.Lock()
	defer lock.Unlock()
	last++
	members[last] = made
	return last, nil
}

func poll(ctx context.Context, r *request) (any, error) {
	of := get(r)
	short, cancel := context.WithTimeout(ctx, time.Duration(r.Ms)*time.Millisecond)
	defer cancel()
	fetches := of.client.PollFetches(short)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	reads := []record{}
	for _, each := range fetches.Records() {
		reads = append(reads, asRead(each))
	}
	of.lock.Lock()
	defer of.lock.Unlock()
	partitions := [][]any{}
	for _, topic := range slices.Sorted(maps.Keys(of.partitions)) {
		for _, each := range of.partitions[topic] {
			partitions = append(partitions, []any{topic, each})
		}
	}
	return map[string]any{"reads": reads, "partitions": partitions}, nil
}
