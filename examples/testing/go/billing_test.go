package billing

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type rule struct {
	ID      int `json:"id"`
	Applied int `json:"applied"`
}

type message struct {
	Value struct {
		Text string `json:"text"`
	} `json:"value"`
}

func TestBilling(t *testing.T) {
	broker := startServer(t)
	ctx := context.Background()

	newClient := func(t *testing.T) *kgo.Client {
		t.Helper()
		if err := broker.call("POST", "/reset", nil, nil); err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(broker.Kafka), kgo.AllowAutoTopicCreation())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}

	t.Run("an order is billed", func(t *testing.T) {
		if err := Bill(ctx, newClient(t), "book"); err != nil {
			t.Fatal(err)
		}
		var bills []message
		if err := broker.call("GET", "/messages/bills", nil, &bills); err != nil {
			t.Fatal(err)
		}
		if len(bills) != 1 || bills[0].Value.Text != "bill of book" {
			t.Fatalf("bills are %v", bills)
		}
	})

	t.Run("a lost response does not write a bill twice", func(t *testing.T) {
		client := newClient(t)
		var lost rule
		fault := map[string]any{"action": "drop-response", "request": "Produce"}
		if err := broker.call("POST", "/rules", fault, &lost); err != nil {
			t.Fatal(err)
		}
		if err := Bill(ctx, client, "book"); err != nil {
			t.Fatal(err)
		}
		var bills []message
		if err := broker.call("GET", "/messages/bills", nil, &bills); err != nil {
			t.Fatal(err)
		}
		var rules []rule
		if err := broker.call("GET", "/rules", nil, &rules); err != nil {
			t.Fatal(err)
		}
		if len(bills) != 1 || rules[0].Applied != 1 {
			t.Fatalf("bills are %v, rules %v", bills, rules)
		}
	})

	t.Run("a bill is written once, whatever happens to its requests", func(t *testing.T) {
		for _, fault := range []map[string]any{
			{"action": "error", "error": "NOT_LEADER_OR_FOLLOWER", "count": 2},
			{"action": "delay", "seconds": 0.1},
			{"action": "cut"},
			{"action": "crash"},
			{"action": "full-disk", "seconds": 0.2},
		} {
			client := newClient(t)
			fault["request"], fault["topic"] = "Produce", "bills"
			if err := broker.call("POST", "/rules", fault, nil); err != nil {
				t.Fatal(err)
			}
			if err := Bill(ctx, client, "book"); err != nil {
				t.Fatalf("%v: %v", fault, err)
			}
			var bills []message
			if err := broker.call("GET", "/messages/bills", nil, &bills); err != nil {
				t.Fatal(err)
			}
			var rules []rule
			if err := broker.call("GET", "/rules", nil, &rules); err != nil {
				t.Fatal(err)
			}
			if len(bills) != 1 || rules[0].Applied == 0 {
				t.Fatalf("%v: bills are %v, rules %v", fault, bills, rules)
			}
		}
	})

	t.Run("a bill that is refused is an error", func(t *testing.T) {
		client := newClient(t)
		fault := map[string]any{"action": "error", "request": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED"}
		if err := broker.call("POST", "/rules", fault, nil); err != nil {
			t.Fatal(err)
		}
		if err := Bill(ctx, client, "book"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Fatalf("the error is %v", err)
		}
	})
}
