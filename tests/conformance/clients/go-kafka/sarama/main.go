// sarama behind lines of JSON. The setting "version" of writers and readers is a release of Kafka:
// then each request is asked in the version which that release had, and nobody is asked what there
// is.
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

	"github.com/IBM/sarama"
)

type (
	header  = lines.Header
	record  = lines.Record
	request = lines.Request
)

var (
	lock    sync.Mutex
	members = map[int]*member{}
	admins  = map[string]*administrator{}
	last    int
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
	"zstd": sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{
	"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
}

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":       sarama.NewBalanceStrategyRange,
	"roundrobin":  sarama.NewBalanceStrategyRoundRobin,
	"sticky":      sarama.NewBalanceStrategySticky,
	"cooperative": sarama.NewBalanceStrategyCooperativeSticky,
}

func main() {
	lines.Serve(run)
}

func run(ctx context.Context, r *request) (any, error) {
	got, err := dispatch(ctx, r)
	return got, named(err)
}

func dispatch(ctx context.Context, r *request) (any, error) {
	switch r.Do {
	case "write":
		return write(r)
	case "read":
		if r.Group != "" {
			return readAsMember(ctx, r)
		}
		return read(ctx, r)
	case "join":
		return join(r)
	case "poll":
		return get(r).poll(ctx, time.Duration(r.Ms)*time.Millisecond)
	case "commit":
		get(r).commit()
		return nil, nil
	case "leave":
		return nil, get(r).leave()
	}
	return administer(r)
}

func get(r *request) *member {
	lock.Lock()
	defer lock.Unlock()
	return members[r.Of]
}

func config(r *request) (*sarama.Config, error) {
	made := sarama.NewConfig()
	made.ClientID = "driven"
	if r.Client != "" {
		made.ClientID = r.Client
	}
	made.Version = sarama.MaxVersion
	if told := r.Settings["version"]; told != "" {
		version, err := sarama.ParseKafkaVersion(told)
		if err != nil {
			return nil, err
		}
		made.Version, made.ApiVersionsRequest = version, false
	}
	made.Metadata.RefreshFrequency = time.Second
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Return.Errors = true
	if r.Committed {
		made.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	return made, nil
}

// --- writing ----------------------------------------------------------------------------------

func write(r *request) (any, error) {
	settings, err := config(r)
	if err != nil {
		return nil, err
	}
	settings.Producer.Return.Successes = true
	settings.Producer.Compression = codecs[r.Codec]
	settings.Producer.RequiredAcks = acks[r.Acks]
	settings.Producer.Flush.Frequency = 20 * time.Millisecond
	if r.Idempotent {
		settings.Producer.Idempotent = true
		settings.Net.MaxOpenRequests = 1
	}
	settings.Producer.Transaction.ID = r.Transaction
	if len(r.Records) > 0 && r.Records[0].Partition != nil {
		settings.Producer.Partitioner = sarama.NewManualPartitioner
	}
	client, err := sarama.NewSyncProducer([]string{r.Address}, settings)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if r.Transaction != "" {
		if err := client.BeginTxn(); err != nil {
			return nil, err
		}
	}
	var messages []*sarama.ProducerMessage
	for _, each := range r.Records {
		messages = append(messages, asMessage(r.Topic, each))
	}
	if err := client.SendMessages(messages); err != nil {
		var each sarama.ProducerErrors
		if errors.As(err, &each) {
			return nil, each[0].Err
		}
		return nil, err
	}
	places := [][]int64{}
	for _, each := range messages {
		places = append(places, []int64{int64(each.Partition), each.Offset})
	}
	if r.Transaction == "" {
		return places, nil
	}
	if r.Abort {
		return places, client.AbortTxn()
	}
	return places, client.CommitTxn()
}

func asMessage(topic string, told record) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: topic}
	if told.Key != nil {
		made.Key = sarama.ByteEncoder(told.Key)
	}
	if told.Value != nil {
		made.Value = sarama.ByteEncoder(told.Value)
	}
	if told.Partition != nil {
		made.Partition = *told.Partition
	}
	if told.Timestamp != nil {
		made.Timestamp = time.UnixMilli(*told.Timestamp)
	}
	for _, each := range told.Headers {
		made.Headers = append(
			made.Headers, sarama.RecordHeader{Key: []byte(each.Name), Value: each.Value},
		)
	}
	return made
}

// --- reading ----------------------------------------------------------------------------------

func asRead(told *sarama.ConsumerMessage) record {
	time := told.Timestamp.UnixMilli()
	read := record{
		Topic: told.Topic, Partition: &told.Partition, Offset: told.Offset,
		Key: told.Key, Value: told.Value, Headers: []header{}, Timestamp: &time,
	}
	for _, each := range told.Headers {
		read.Headers = append(read.Headers, header{Name: string(each.Key), Value: each.Value})
	}
	return read
}

func read(ctx context.Context, r *request) (any, error) {
	settings, err := config(r)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer([]string{r.Address}, settings)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partitions, err := consumer.Partitions(r.Topic)
	if err != nil {
		return nil, err
	}
	messages, failed := make(chan *sarama.ConsumerMessage), make(chan error)
	for _, each := range partitions {
		of, err := consumer.ConsumePartition(r.Topic, each, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer of.AsyncClose()
		go func() {
			for {
				select {
				case message, more := <-of.Messages():
					if !more || !handed(ctx, messages, message) {
						return
					}
				case err := <-of.Errors():
					handed[error](ctx, failed, err)
					return
				}
			}
		}()
	}
	reads := []record{}
	for len(reads) < r.Count {
		select {
		case message := <-messages:
			reads = append(reads, asRead(message))
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			return reads, nil
		}
	}
	return reads, nil
}

func handed[T any](ctx context.Context, to chan T, each T) bool {
	select {
	case to <- each:
		return true
	case <-ctx.Done():
		return false
	}
}

func readAsMember(ctx context.Context, r *request) (any, error) {
	r.Topics = []string{r.Topic}
	made, err := memberOf(r)
	if err != nil {
		return nil, err
	}
	reads := []record{}
	for len(reads) < r.Count && ctx.Err() == nil {
		more, err := made.more(ctx, 100*time.Millisecond, r.Count-len(reads))
		if err != nil {
			return nil, err
		}
		reads = append(reads, more...)
	}
	made.commit()
	return reads, made.leave()
}

// --- members of groups --------------------------------------------------------------------------

// A member of a group; what it has is told by whom sarama lets consume.
type member struct {
	group      sarama.ConsumerGroup
	end        context.CancelFunc
	messages   chan handedOver
	lock       sync.Mutex
	session    sarama.ConsumerGroupSession
	partitions map[string][]int32
	failed     error
}

type handedOver struct {
	message *sarama.ConsumerMessage
	session sarama.ConsumerGroupSession
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	topic, partition := claim.Topic(), claim.Partition()
	m.lock.Lock()
	m.partitions[topic] = append(m.partitions[topic], partition)
	m.lock.Unlock()
	defer func() {
		m.lock.Lock()
		defer m.lock.Unlock()
		m.partitions[topic] = slices.DeleteFunc(
			m.partitions[topic], func(each int32) bool { return each == partition },
		)
	}()
	for message := range claim.Messages() {
		if !handed(session.Context(), m.messages, handedOver{message, session}) {
			return nil
		}
	}
	return nil
}

func memberOf(r *request) (*member, error) {
	settings, err := config(r)
	if err != nil {
		return nil, err
	}
	settings.Consumer.Group.Session.Timeout = 6 * time.Second
	settings.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	strategy := strategies["range"]
	if told := r.Settings["strategy"]; told != "" {
		strategy = strategies[told]
	}
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
	settings.Consumer.Group.InstanceId = r.Settings["group.instance.id"]
	group, err := sarama.NewConsumerGroup([]string{r.Address}, r.Group, settings)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	made := &member{
		group: group, end: end, messages: make(chan handedOver), partitions: map[string][]int32{},
	}
	go func() {
		for range group.Errors() { // each is also what Consume returns, or comes again
		}
	}()
	go func() {
		for ctx.Err() == nil {
			err := group.Consume(ctx, r.Topics, made)
			if errors.Is(err, sarama.ErrFencedInstancedId) {
				made.lock.Lock()
				made.failed = err
				made.lock.Unlock()
				return
			}
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
		}
	}()
	return made, nil
}

func join(r *request) (any, error) {
	made, err := memberOf(r)
	if err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	last++
	members[last] = made
	return last, nil
}

// As many as come within a time, and no more than `most`; marked as those to commit.
func (m *member) more(ctx context.Context, wait time.Duration, most int) ([]record, error) {
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	reads := []record{}
	for len(reads) < most {
		select {
		case each := <-m.messages:
			each.session.MarkMessage(each.message, "")
			reads = append(reads, asRead(each.message))
		case <-short.Done():
			m.lock.Lock()
			defer m.lock.Unlock()
			return reads, m.failed
		}
	}
	return reads, nil
}

func (m *member) poll(ctx context.Context, wait time.Duration) (any, error) {
	reads, err := m.more(ctx, wait, 500)
	if err != nil {
		return nil, err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	partitions := [][]any{}
	for _, topic := range slices.Sorted(maps.Keys(m.partitions)) {
		for _, each := range m.partitions[topic] {
			partitions = append(partitions, []any{topic, each})
		}
	}
	return map[string]any{"reads": reads, "partitions": partitions}, nil
}

func (m *member) commit() {
	m.lock.Lock()
	session := m.session
	m.lock.Unlock()
	if session != nil {
		session.Commit()
	}
}

func (m *member) leave() error {
	m.end()
	return m.group.Close()
}

// --- errors -----------------------------------------------------------------------------------

// Kafka's names of what sarama says in sentences.
var names = map[sarama.KError]string{
	sarama.ErrOffsetOutOfRange: "OFFSET_OUT_OF_RANGE", sarama.ErrInvalidPartitions: "INVALID_PARTITIONS",
	sarama.ErrUnknownTopicOrPartition:  "UNKNOWN_TOPIC_OR_PARTITION",
	sarama.ErrInvalidRequest:           "INVALID_REQUEST",
	sarama.ErrInvalidReplicaAssignment: "INVALID_REPLICA_ASSIGNMENT",
	sarama.ErrGroupIDNotFound:          "GROUP_ID_NOT_FOUND", sarama.ErrNonEmptyGroup: "NON_EMPTY_GROUP",
	sarama.ErrGroupSubscribedToTopic:             "GROUP_SUBSCRIBED_TO_TOPIC",
	sarama.ErrTransactionalIDAuthorizationFailed: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
	sarama.ErrMessageSizeTooLarge:                "MESSAGE_TOO_LARGE",
	sarama.ErrFencedInstancedId:                  "FENCED_INSTANCE_ID",
	sarama.ErrElectionNotNeeded:                  "ELECTION_NOT_NEEDED",
	transactionalIDNotFound:                      "TRANSACTIONAL_ID_NOT_FOUND",
}

const transactionalIDNotFound = sarama.KError(105) // which it has no word for

func named(err error) error {
	var code sarama.KError
	if errors.As(err, &code) && names[code] != "" {
		return fmt.Errorf("%w (%s)", err, names[code])
	}
	return err
}
