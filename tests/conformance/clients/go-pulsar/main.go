// The Go client behind lines of JSON: {"id": 7, "do": "send", ...} on standard input is answered by
// {"id": 7, "got": ...} or {"id": 7, "error": "..."} on standard output, in any order, each request
// in a goroutine of its own. Verbs and their words: pulsar.py beside this folder.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

type schema struct {
	Type       string          `json:"type"`
	Definition json.RawMessage `json:"definition"`
}

type message struct {
	Value       *[]byte           `json:"value"`
	Record      map[string]any    `json:"record"`
	Key         string            `json:"key"`
	OrderingKey string            `json:"ordering_key"`
	Properties  map[string]string `json:"properties"`
	EventTime   int64             `json:"event_time"`
	Sequence    *int64            `json:"sequence"`
}

// One request of any verb; what a verb does not know stays empty.
type request struct {
	ID int    `json:"id"`
	Do string `json:"do"`
	Of int    `json:"of"`

	URL       string `json:"url"`
	TimeoutMs int    `json:"timeout_ms"`

	Token       *string `json:"token"`
	User        string  `json:"user"`
	Password    string  `json:"password"`
	Certificate string  `json:"certificate"`
	Key         string  `json:"key"`
	CA          string  `json:"ca"`

	Topic         string            `json:"topic"`
	Name          string            `json:"name"`
	Properties    map[string]string `json:"properties"`
	Schema        *schema           `json:"schema"`
	Batching      bool              `json:"batching"`
	BatchMessages uint              `json:"batch_messages"`
	BatchDelayMs  int               `json:"batch_delay_ms"`
	ByKey         bool              `json:"by_key"`
	Compression   string            `json:"compression"`
	Chunking      bool              `json:"chunking"`
	ChunkSize     uint              `json:"chunk_size"`
	Access        string            `json:"access"`
	SendTimeoutMs int               `json:"send_timeout_ms"`
	Single        bool              `json:"single"`
	Messages      []message         `json:"messages"`

	Topics           []string `json:"topics"`
	Pattern          string   `json:"pattern"`
	Subscription     string   `json:"subscription"`
	Type             string   `json:"type"`
	Earliest         bool     `json:"earliest"`
	Receipts         bool     `json:"receipts"`
	BatchIndex       bool     `json:"batch_index"`
	AckGroupMs       int      `json:"ack_group_ms"`
	NackMs           *int     `json:"nack_ms"`
	Queue            int      `json:"queue"`
	Priority         int      `json:"priority"`
	Inclusive        bool     `json:"inclusive"`
	Compacted        bool     `json:"compacted"`
	Retry            bool     `json:"retry"`
	DeadAfter        uint32   `json:"dead_after"`
	DeadTopic        string   `json:"dead_topic"`
	RetryTopic       string   `json:"retry_topic"`
	DeadSubscription string   `json:"dead_subscription"`
	Ranges           [][2]int `json:"ranges"`
	OutOfOrder       bool     `json:"out_of_order"`

	Start      string   `json:"start"`
	Count      int      `json:"count"`
	IDs        [][]byte `json:"ids"`
	Cumulative bool     `json:"cumulative"`

	Transactions bool `json:"transactions"`
	Transaction  int  `json:"transaction"`
	DelayMs    int      `json:"delay_ms"`
	To         string   `json:"to"`
	Time       *int64   `json:"time"`
}

type read struct {
	ID          []byte            `json:"id"`
	Ledger      int64             `json:"ledger"`
	Entry       int64             `json:"entry"`
	Batch       int32             `json:"batch"`
	Partition   int32             `json:"partition"`
	Value       *[]byte           `json:"value"`
	Record      map[string]any    `json:"record"`
	Key         *string           `json:"key"`
	OrderingKey *string           `json:"ordering_key"`
	Properties  map[string]string `json:"properties"`
	EventTime   int64             `json:"event_time"`
	PublishTime int64             `json:"publish_time"`
	Redelivery  uint32            `json:"redelivery"`
	Topic       string            `json:"topic"`
	Producer    string            `json:"producer"`
}

// What a consumer was told of its activity.
type listener struct {
	lock sync.Mutex
	seen []string
}

func (l *listener) add(what string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.seen = append(l.seen, what)
}

func (l *listener) BecameActive(_ pulsar.Consumer, _ string, _ int32)   { l.add("active") }
func (l *listener) BecameInactive(_ pulsar.Consumer, _ string, _ int32) { l.add("inactive") }

// One thing with a handle: a client, a producer, a consumer, a reader or a view.
type thing struct {
	client   pulsar.Client
	txn      pulsar.Transaction
	producer pulsar.Producer
	consumer pulsar.Consumer
	reader   pulsar.Reader
	view     pulsar.TableView
	schema   *schema
	listener *listener
	lock     sync.Mutex
	messages map[string]pulsar.Message
}

var (
	lock   sync.Mutex
	things = map[int]*thing{}
	output sync.Mutex

	bytesType = reflect.TypeOf([]byte{})
)

func keep(t *thing) int {
	lock.Lock()
	defer lock.Unlock()
	things[len(things)+1] = t
	t.messages = map[string]pulsar.Message{}
	return len(things)
}

func find(handle int) *thing {
	lock.Lock()
	defer lock.Unlock()
	if found, ok := things[handle]; ok {
		return found
	}
	return &thing{}
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			panic(fmt.Sprintf("%v in %.200s", err, line))
		}
		go answer(r)
	}
}

func answer(r request) {
	got, err := run(&r)
	answer := map[string]any{"id": r.ID, "got": got}
	if err != nil {
		answer["error"] = err.Error()
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func run(r *request) (any, error) {
	t := find(r.Of)
	switch r.Do {
	case "connect":
		return connect(r)
	case "producer":
		return producer(t.client, r)
	case "send":
		return send(t, r)
	case "consumer":
		return consumer(t.client, r)
	case "reader":
		return reader(t.client, r)
	case "view":
		view, err := t.client.CreateTableView(pulsar.TableViewOptions{
			Topic: r.Topic, Schema: pulsar.NewBytesSchema(nil), SchemaValueType: bytesType,
		})
		if err != nil {
			return nil, err
		}
		return keep(&thing{view: view}), nil
	case "begin":
		txn, err := t.client.NewTransaction(ms(r.TimeoutMs))
		if err != nil {
			return nil, err
		}
		id := txn.GetTxnID()
		return map[string]any{
			"handle": keep(&thing{txn: txn}), "most": id.MostSigBits, "least": id.LeastSigBits,
		}, nil
	case "commit":
		return nil, t.txn.Commit(context.Background())
	case "abort":
		return nil, t.txn.Abort(context.Background())
	case "partitions":
		return t.client.TopicPartitions(r.Topic)
	case "receive":
		return receive(t, r)
	case "ack":
		return nil, ack(t, r)
	case "nack":
		for _, id := range r.IDs {
			t.consumer.Nack(t.message(id))
		}
		return nil, nil
	case "reconsume":
		for _, id := range r.IDs {
			t.consumer.ReconsumeLater(t.message(id), ms(r.DelayMs))
		}
		return nil, nil
	case "unsubscribe":
		return nil, t.consumer.Unsubscribe()
	case "last":
		return last(t)
	case "seek":
		return nil, seek(t, r)
	case "has_next":
		return t.reader.HasNext(), nil
	case "events":
		t.listener.lock.Lock()
		defer t.listener.lock.Unlock()
		return append([]string{}, t.listener.seen...), nil
	case "sequence":
		return t.producer.LastSequenceID(), nil
	case "entries":
		return entries(t)
	case "close":
		closeThing(t)
		return nil, nil
	}
	return nil, fmt.Errorf("unknown verb %s", r.Do)
}

func ms(count int) time.Duration {
	return time.Duration(count) * time.Millisecond
}

func (t *thing) message(id []byte) pulsar.Message {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.messages[string(id)]
}

func connect(r *request) (any, error) {
	timeout := ms(r.TimeoutMs)
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var authentication pulsar.Authentication
	var err error
	switch {
	case r.Token != nil:
		authentication = pulsar.NewAuthenticationToken(*r.Token)
	case r.User != "":
		authentication, err = pulsar.NewAuthenticationBasic(r.User, r.Password)
	case r.Certificate != "":
		authentication = pulsar.NewAuthenticationTLS(r.Certificate, r.Key)
	}
	if err != nil {
		return nil, err
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: r.URL, OperationTimeout: timeout, Logger: log.NewLoggerWithSlog(quiet),
		EnableTransaction: r.Transactions, Authentication: authentication,
		TLSTrustCertsFilePath: r.CA, TLSValidateHostname: r.CA != "",
	})
	if err != nil {
		return nil, err
	}
	return keep(&thing{client: client}), nil
}

func (s *schema) made() pulsar.Schema {
	if s == nil {
		return nil
	}
	switch s.Type {
	case "avro":
		return pulsar.NewAvroSchema(string(s.Definition), nil)
	case "json":
		return pulsar.NewJSONSchema(string(s.Definition), nil)
	case "string":
		return pulsar.NewStringSchema(nil)
	}
	panic("schema " + s.Type)
}

var compressions = map[string]pulsar.CompressionType{
	"": pulsar.NoCompression, "none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib,
	"zstd": pulsar.ZSTD, "snappy": pulsar.SNAPPY,
}

var accesses = map[string]pulsar.ProducerAccessMode{
	"": pulsar.ProducerAccessModeShared, "exclusive": pulsar.ProducerAccessModeExclusive,
	"wait": pulsar.ProducerAccessModeWaitForExclusive,
}

func producer(client pulsar.Client, r *request) (any, error) {
	options := pulsar.ProducerOptions{
		Topic: r.Topic, Name: r.Name, Properties: r.Properties, Schema: r.Schema.made(),
		DisableBatching: !r.Batching, BatchingMaxMessages: r.BatchMessages,
		BatchingMaxPublishDelay: ms(r.BatchDelayMs), CompressionType: compressions[r.Compression],
		EnableChunking: r.Chunking, ChunkMaxMessageSize: r.ChunkSize,
		ProducerAccessMode: accesses[r.Access], SendTimeout: ms(r.SendTimeoutMs),
	}
	if r.ByKey {
		options.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
	}
	if r.Single {
		options.MessageRouter = func(*pulsar.ProducerMessage, pulsar.TopicMetadata) int { return 0 }
	}
	producer, err := client.CreateProducer(options)
	if err != nil {
		return nil, err
	}
	handle := keep(&thing{producer: producer, schema: r.Schema})
	return map[string]any{
		"handle": handle, "name": producer.Name(), "sequence": producer.LastSequenceID(),
	}, nil
}

func send(t *thing, r *request) (any, error) {
	results := make([]map[string]any, len(r.Messages))
	var sent sync.WaitGroup
	for i, m := range r.Messages {
		out := pulsar.ProducerMessage{
			Key: m.Key, OrderingKey: m.OrderingKey, Properties: m.Properties, SequenceID: m.Sequence,
			Transaction: transaction(r),
		}
		switch {
		case t.schema != nil && t.schema.Type == "string":
			out.Value = string(*m.Value)
		case t.schema != nil:
			out.Value = whole(m.Record)
		case m.Value != nil:
			out.Payload = *m.Value
		}
		if m.EventTime != 0 {
			out.EventTime = time.UnixMilli(m.EventTime)
		}
		sent.Add(1)
		t.producer.SendAsync(context.Background(), &out,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				defer sent.Done()
				if err != nil {
					results[i] = map[string]any{"error": err.Error()}
				} else {
					results[i] = map[string]any{"id": id.Serialize()}
				}
			})
	}
	go t.producer.Flush()
	sent.Wait()
	return results, nil
}

// JSON has floats alone; the schemas of the tests have integers.
func whole(record map[string]any) map[string]any {
	for name, value := range record {
		if number, ok := value.(float64); ok {
			record[name] = int(number)
		}
	}
	return record
}

var types = map[string]pulsar.SubscriptionType{
	"": pulsar.Exclusive, "exclusive": pulsar.Exclusive, "shared": pulsar.Shared,
	"failover": pulsar.Failover, "key_shared": pulsar.KeyShared,
}

func consumer(client pulsar.Client, r *request) (any, error) {
	heard := &listener{}
	nack := 100
	if r.NackMs != nil {
		nack = *r.NackMs
	}
	options := pulsar.ConsumerOptions{
		SubscriptionName: r.Subscription, Type: types[r.Type], Name: r.Name, Properties: r.Properties,
		PriorityLevel: r.Priority, ReceiverQueueSize: r.Queue, ReadCompacted: r.Compacted,
		StartMessageIDInclusive: r.Inclusive, AckWithResponse: r.Receipts,
		EnableBatchIndexAcknowledgment: r.BatchIndex, NackRedeliveryDelay: ms(nack),
		RetryEnable: r.Retry, Schema: r.Schema.made(), EventListener: heard,
		AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 0, MaxTime: ms(r.AckGroupMs)},
	}
	if r.Earliest {
		options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	}
	switch {
	case r.Pattern != "":
		options.TopicsPattern, options.AutoDiscoveryPeriod = r.Pattern, time.Second
	case len(r.Topics) == 1:
		options.Topic = r.Topics[0]
	default:
		options.Topics = r.Topics
	}
	if r.DeadAfter != 0 {
		most := r.DeadAfter // times that it is consumed again
		if !r.Retry {
			most++ // times that it is delivered
		}
		options.DLQ = &pulsar.DLQPolicy{
			MaxDeliveries: most, DeadLetterTopic: r.DeadTopic, RetryLetterTopic: r.RetryTopic,
			InitialSubscriptionName: r.DeadSubscription,
		}
	}
	if r.Ranges != nil {
		var flat []int
		for _, bounds := range r.Ranges {
			flat = append(flat, bounds[0], bounds[1])
		}
		policy, err := pulsar.NewKeySharedPolicySticky(flat)
		if err != nil {
			return nil, err
		}
		options.KeySharedPolicy = policy
	} else if r.OutOfOrder {
		options.KeySharedPolicy = &pulsar.KeySharedPolicy{
			Mode: pulsar.KeySharedPolicyModeAutoSplit, AllowOutOfOrderDelivery: true,
		}
	}
	made, err := client.Subscribe(options)
	if err != nil {
		return nil, err
	}
	return keep(&thing{consumer: made, schema: r.Schema, listener: heard}), nil
}

func messageID(token string) (pulsar.MessageID, error) {
	switch token {
	case "earliest":
		return pulsar.EarliestMessageID(), nil
	case "latest":
		return pulsar.LatestMessageID(), nil
	}
	var id []byte
	if err := json.Unmarshal([]byte(`"`+token+`"`), &id); err != nil {
		return nil, err
	}
	return pulsar.DeserializeMessageID(id)
}

func reader(client pulsar.Client, r *request) (any, error) {
	start, err := messageID(r.Start)
	if err != nil {
		return nil, err
	}
	made, err := client.CreateReader(pulsar.ReaderOptions{
		Topic: r.Topic, StartMessageID: start, StartMessageIDInclusive: r.Inclusive,
		ReadCompacted: r.Compacted, Schema: r.Schema.made(),
	})
	if err != nil {
		return nil, err
	}
	return keep(&thing{reader: made, schema: r.Schema}), nil
}

func receive(t *thing, r *request) (any, error) {
	got := []read{}
	until, cancel := context.WithTimeout(context.Background(), ms(r.TimeoutMs))
	defer cancel()
	for len(got) < r.Count {
		var m pulsar.Message
		var err error
		if t.reader != nil {
			m, err = t.reader.Next(until)
		} else {
			m, err = t.consumer.Receive(until)
		}
		if until.Err() != nil && m == nil {
			break
		}
		if err != nil {
			return nil, err
		}
		t.lock.Lock()
		t.messages[string(m.ID().Serialize())] = m
		t.lock.Unlock()
		got = append(got, described(t, m))
	}
	return got, nil
}

func described(t *thing, m pulsar.Message) read {
	id := m.ID()
	out := read{
		ID: id.Serialize(), Ledger: id.LedgerID(), Entry: id.EntryID(), Batch: id.BatchIdx(),
		Partition: id.PartitionIdx(), Properties: m.Properties(), Redelivery: m.RedeliveryCount(),
		Topic: m.Topic(), Producer: m.ProducerName(), PublishTime: m.PublishTime().UnixMilli(),
	}
	payload := m.Payload()
	if payload == nil {
		payload = []byte{}
	}
	if t.schema != nil && t.schema.Type != "string" {
		out.Record = map[string]any{}
		if err := m.GetSchemaValue(&out.Record); err != nil {
			out.Record["error"] = err.Error()
		}
	} else if !m.IsNullValue() {
		out.Value = &payload
	}
	if key := m.Key(); key != "" {
		out.Key = &key
	}
	if key := m.OrderingKey(); key != "" {
		out.OrderingKey = &key
	}
	if when := m.EventTime(); when.UnixMilli() > 0 {
		out.EventTime = when.UnixMilli()
	}
	return out
}

func transaction(r *request) pulsar.Transaction {
	lock.Lock()
	defer lock.Unlock()
	if r.Transaction == 0 {
		return nil
	}
	return things[r.Transaction].txn
}

func ack(t *thing, r *request) error {
	for _, id := range r.IDs {
		known := t.message(id)
		var err error
		if r.Transaction != 0 {
			err = t.consumer.AckWithTxn(known, transaction(r))
		} else if r.Cumulative {
			err = t.consumer.AckCumulative(known)
		} else {
			err = t.consumer.Ack(known)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func last(t *thing) (any, error) {
	if t.reader != nil {
		id, err := t.reader.GetLastMessageID()
		if err != nil {
			return nil, err
		}
		return id.Serialize(), nil
	}
	ids, err := t.consumer.GetLastMessageIDs()
	if err != nil {
		return nil, err
	}
	return ids[0].Serialize(), nil
}

func seek(t *thing, r *request) error {
	if r.Time != nil {
		when := time.UnixMilli(*r.Time)
		if t.reader != nil {
			return t.reader.SeekByTime(when)
		}
		return t.consumer.SeekByTime(when)
	}
	to, err := messageID(r.To)
	if err != nil {
		return err
	}
	if t.reader != nil {
		return t.reader.Seek(to)
	}
	return t.consumer.Seek(to)
}

func closeThing(t *thing) {
	switch {
	case t.producer != nil:
		t.producer.Close()
	case t.consumer != nil:
		t.consumer.Close()
	case t.reader != nil:
		t.reader.Close()
	case t.view != nil:
		t.view.Close()
	case t.client != nil:
		t.client.Close()
	}
}

func entries(t *thing) (any, error) {
	entries := map[string][]byte{}
	for key, value := range t.view.Entries() {
		switch content := value.(type) {
		case *[]byte:
			entries[key] = *content
		case []byte:
			entries[key] = content
		default:
			return nil, fmt.Errorf("a view of %T", value)
		}
	}
	return entries, nil
}
