// Package billing writes a bill for each order.
package billing

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Bill writes the bill of an order to the topic bills.
func Bill(ctx context.Context, client *kgo.Client, order string) error {
	record := &kgo.Record{Topic: "bills", Value: []byte("bill of " + order)}
	return client.ProduceSync(ctx, record).FirstErr()
}
