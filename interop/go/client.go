package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// once is for what must fail: the error, instead of further attempts.
var once = azeventhubs.RetryOptions{MaxRetries: -1}

func newProducer(setting Setting, hub string) (*azeventhubs.ProducerClient, error) {
	return azeventhubs.NewProducerClientFromConnectionString(setting.ConnectionString, hub, nil)
}

// target says where a batch goes: to a partition, by a key, or wherever the hub likes.
type target struct{ partition, key string }

// send sends events as one batch.
func send(ctx context.Context, producer *azeventhubs.ProducerClient, where target, events ...*azeventhubs.EventData) error {
	options := &azeventhubs.EventDataBatchOptions{}
	if where.partition != "" {
		options.PartitionID = &where.partition
	}
	if where.key != "" {
		options.PartitionKey = &where.key
	}
	batch, err := producer.NewEventDataBatch(ctx, options)
	if err != nil {
		return err
	}
	for _, event := range events {
		if err := batch.AddEventData(event, nil); err != nil {
			return err
		}
	}
	return producer.SendEventDataBatch(ctx, batch, nil)
}

// sendTo is send with a producer of its own.
func sendTo(ctx context.Context, setting Setting, hub string, where target, events ...*azeventhubs.EventData) error {
	producer, err := newProducer(setting, hub)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	return send(ctx, producer, where, events...)
}

func event(body string) *azeventhubs.EventData {
	return &azeventhubs.EventData{Body: []byte(body)}
}

func numbered(word string, count int) (events []*azeventhubs.EventData) {
	for _, name := range names(word, 0, count) {
		events = append(events, event(name))
	}
	return events
}

func names(word string, from, to int) (names []string) {
	for n := from; n < to; n++ {
		names = append(names, fmt.Sprintf("%s-%d", word, n))
	}
	return names
}

func bodies(events []*azeventhubs.ReceivedEventData) (bodies []string) {
	for _, event := range events {
		bodies = append(bodies, string(event.Body))
	}
	return bodies
}

// reading says how a partition is read.
type reading struct {
	connectionString string
	hub, partition   string
	from             azeventhubs.StartPosition
	ownerLevel       *int64
	retry            azeventhubs.RetryOptions
	webSocket        bool
	endpoint         string
}

func (setting Setting) reading(hub, partition string) reading {
	return reading{
		connectionString: setting.ConnectionString,
		hub:              hub,
		partition:        partition,
		from:             azeventhubs.StartPosition{Earliest: to.Ptr(true)},
	}
}

// reader reads one partition in the background.
type reader struct {
	mutex  sync.Mutex
	events []*azeventhubs.ReceivedEventData
	failed error
	cancel context.CancelFunc
	done   chan struct{}
}

func (how reading) open(ctx context.Context) *reader {
	ctx, cancel := context.WithCancel(ctx)
	r := &reader{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := how.run(ctx, r); err != nil && ctx.Err() == nil {
			r.mutex.Lock()
			r.failed = err
			r.mutex.Unlock()
		}
	}()
	return r
}

func (how reading) run(ctx context.Context, into *reader) error {
	options := &azeventhubs.ConsumerClientOptions{RetryOptions: how.retry, CustomEndpoint: how.endpoint}
	if how.webSocket {
		options.NewWebSocketConn = dialWebSocket
	}
	client, err := azeventhubs.NewConsumerClientFromConnectionString(how.connectionString, how.hub, azeventhubs.DefaultConsumerGroup, options)
	if err != nil {
		return err
	}
	defer client.Close(context.Background())
	partition, err := client.NewPartitionClient(how.partition, &azeventhubs.PartitionClientOptions{
		StartPosition: how.from, OwnerLevel: how.ownerLevel,
	})
	if err != nil {
		return err
	}
	defer partition.Close(context.Background())
	for {
		// With a deadline of its own, so that a few events are given before there are many.
		wait, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		events, err := partition.ReceiveEvents(wait, 100, nil)
		late := wait.Err() != nil
		cancel()
		into.mutex.Lock()
		into.events = append(into.events, events...)
		into.mutex.Unlock()
		if ctx.Err() != nil || err != nil && !late {
			return err
		}
	}
}

func (r *reader) seen() []*azeventhubs.ReceivedEventData {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]*azeventhubs.ReceivedEventData{}, r.events...)
}

func (r *reader) err() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.failed
}

// take waits for this many events.
func (r *reader) take(count int) ([]*azeventhubs.ReceivedEventData, error) {
	if !until(20, func() bool { return len(r.seen()) >= count }) {
		return nil, fmt.Errorf("%d of %d events within 20 s, error: %w", len(r.seen()), count, r.err())
	}
	return r.seen(), nil
}

// failure waits for the reader to fail.
func (r *reader) failure() error {
	until(30, func() bool { return r.err() != nil })
	return r.err()
}

func (r *reader) close() {
	r.cancel()
	<-r.done
}

// read reads this many events.
func (how reading) read(ctx context.Context, count int) ([]*azeventhubs.ReceivedEventData, error) {
	reader := how.open(ctx)
	defer reader.close()
	return reader.take(count)
}

func until(seconds int, condition func() bool) bool {
	for range seconds * 50 {
		if condition() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return condition()
}
