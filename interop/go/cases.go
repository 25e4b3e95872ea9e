package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/coder/websocket"
)

// The cases, each a small program of its own.
var cases = map[string]func(context.Context, Setting) error{
	"hub_properties":       hubProperties,
	"partition_properties": partitionProperties,
	"send_single":          sendSingle,
	"send_batch":           sendBatch,
	"send_by_key":          sendByKey,
	"send_to_partition":    sendToPartition,
	"buffered_producer":    func(context.Context, Setting) error { return notOffered("") },
	"receive_earliest":     receiveEarliest,
	"receive_latest":       receiveLatest,
	"receive_offset":       receiveOffset,
	"receive_sequence":     receiveSequence,
	"receive_time":         receiveTime,
	"content_round_trip":   contentRoundTrip,
	"last_enqueued_info":   func(context.Context, Setting) error { return notOffered("") },
	"epoch_eviction":       epochEviction,
	"sixth_reader":         sixthReader,
	"unknown_hub":          unknownHub,
	"bad_key":              badKey,
	"expired_token":        expiredToken,
	"token_expires":        tokenExpires,
	"own_rules":            ownRules,
	"event_too_large":      eventTooLarge,
	"idempotent_producer":  func(context.Context, Setting) error { return notOffered("") },
	"tls":                  overTLS,
	"websocket":            overWebSocket,
	"hub_restart":          hubRestart,
}

func same(found, expected any) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("expected %v, found %v", expected, found)
	}
	return nil
}

// saying checks that something failed, with one of these words.
func saying(err error, words ...string) error {
	if err == nil {
		return errors.New("it was not refused")
	}
	if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(err.Error(), word) }) {
		return fmt.Errorf("another error than expected: %w", err)
	}
	return nil
}

// ---- properties --------------------------------------------------------------------------------------------------

func hubProperties(ctx context.Context, setting Setting) error {
	producer, err := newProducer(setting, "properties")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	found, err := producer.GetEventHubProperties(ctx, nil)
	if err != nil {
		return err
	}
	if time.Since(found.CreatedOn).Abs() > 24*time.Hour {
		return fmt.Errorf("created on %v", found.CreatedOn)
	}
	return errors.Join(same(found.Name, "properties"), same(found.PartitionIDs, []string{"0", "1", "2", "3"}))
}

func partitionProperties(ctx context.Context, setting Setting) error {
	producer, err := newProducer(setting, "properties")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	empty, err := producer.GetPartitionProperties(ctx, "1", nil)
	if err != nil {
		return err
	}
	if err := errors.Join(same(empty.IsEmpty, true), same(empty.LastEnqueuedSequenceNumber, int64(-1))); err != nil {
		return err
	}
	if err := send(ctx, producer, target{partition: "2"}, numbered("one", 3)...); err != nil {
		return err
	}
	found, err := producer.GetPartitionProperties(ctx, "2", nil)
	if err != nil {
		return err
	}
	events, err := setting.reading("properties", "2").read(ctx, 3)
	if err != nil {
		return err
	}
	return errors.Join(
		same(found.EventHubName, "properties"), same(found.PartitionID, "2"), same(found.IsEmpty, false),
		same(found.BeginningSequenceNumber, int64(0)), same(found.LastEnqueuedSequenceNumber, int64(2)),
		same(found.LastEnqueuedOffset, events[2].Offset), same(found.LastEnqueuedOn.UTC(), events[2].EnqueuedTime.UTC()))
}

// ---- sending -----------------------------------------------------------------------------------------------------

func sendSingle(ctx context.Context, setting Setting) error {
	producer, err := newProducer(setting, "single")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	for _, event := range numbered("single", 3) {
		if err := send(ctx, producer, target{partition: "0"}, event); err != nil {
			return err
		}
	}
	events, err := setting.reading("single", "0").read(ctx, 3)
	return errors.Join(err, same(bodies(events), names("single", 0, 3)))
}

func sendBatch(ctx context.Context, setting Setting) error {
	if err := sendTo(ctx, setting, "batches", target{partition: "0"}, numbered("batch", 500)...); err != nil {
		return err
	}
	events, err := setting.reading("batches", "0").read(ctx, 500)
	if err := errors.Join(err, same(bodies(events), names("batch", 0, 500))); err != nil {
		return err
	}

	producer, err := newProducer(setting, "batches")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	full, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr("1")})
	if err != nil {
		return err
	}
	for err == nil {
		err = full.AddEventData(&azeventhubs.EventData{Body: make([]byte, 10_000)}, nil)
	}
	count := int(full.NumEvents())
	if !errors.Is(err, azeventhubs.ErrEventDataTooLarge) || count < 90 || count > 105 {
		return fmt.Errorf("%d events of 10 kB in a batch of 1 MiB, then %w", count, err)
	}
	if err := producer.SendEventDataBatch(ctx, full, nil); err != nil {
		return err
	}
	_, err = setting.reading("batches", "1").read(ctx, count)
	return err
}

func sendByKey(ctx context.Context, setting Setting) error {
	for key, partition := range setting.Keys {
		if err := sendTo(ctx, setting, "keys", target{key: key}, event("key "+key)); err != nil {
			return err
		}
		reader := setting.reading("keys", partition).open(ctx)
		found := until(20, func() bool {
			return slices.ContainsFunc(reader.seen(), func(event *azeventhubs.ReceivedEventData) bool {
				return string(event.Body) == "key "+key && event.PartitionKey != nil && *event.PartitionKey == key
			})
		})
		reader.close()
		if !found {
			return fmt.Errorf("key %s is not on partition %s: %v", key, partition, reader.err())
		}
	}
	return nil
}

func sendToPartition(ctx context.Context, setting Setting) error {
	for _, partition := range []string{"0", "1", "2", "3"} {
		if err := sendTo(ctx, setting, "partitions", target{partition: partition}, event("to "+partition)); err != nil {
			return err
		}
		events, err := setting.reading("partitions", partition).read(ctx, 1)
		if err := errors.Join(err, same(bodies(events), []string{"to " + partition})); err != nil {
			return err
		}
	}
	return nil
}

// ---- receiving ---------------------------------------------------------------------------------------------------

var sent []*azeventhubs.ReceivedEventData

// positions gives five events on a partition, 20 ms apart, sent once, as received.
func positions(ctx context.Context, setting Setting) ([]*azeventhubs.ReceivedEventData, error) {
	if sent != nil {
		return sent, nil
	}
	producer, err := newProducer(setting, "positions")
	if err != nil {
		return nil, err
	}
	defer producer.Close(ctx)
	for _, event := range numbered("position", 5) {
		if err := send(ctx, producer, target{partition: "0"}, event); err != nil {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	sent, err = setting.reading("positions", "0").read(ctx, 5)
	return sent, err
}

// from reads from a position; the first event is to be that with this number.
func from(ctx context.Context, setting Setting, position azeventhubs.StartPosition, first int) error {
	how := setting.reading("positions", "0")
	how.from = position
	events, err := how.read(ctx, 5-first)
	return errors.Join(err, same(bodies(events), names("position", first, 5)))
}

func receiveEarliest(ctx context.Context, setting Setting) error {
	events, err := positions(ctx, setting)
	return errors.Join(err, same(bodies(events), names("position", 0, 5)))
}

func receiveLatest(ctx context.Context, setting Setting) error {
	producer, err := newProducer(setting, "positions")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	if err := send(ctx, producer, target{partition: "1"}, event("before")); err != nil {
		return err
	}
	how := setting.reading("positions", "1")
	how.from = azeventhubs.StartPosition{Latest: to.Ptr(true)}
	reader := how.open(ctx)
	defer reader.close()
	// The reader is attached some time after it was started: send until one comes through.
	for n := 0; n < 100 && len(reader.seen()) == 0; n++ {
		if err := send(ctx, producer, target{partition: "1"}, event(fmt.Sprintf("after-%d", n))); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	events, err := reader.take(1)
	for _, body := range bodies(events) {
		if !strings.HasPrefix(body, "after") {
			return fmt.Errorf("read %s", body)
		}
	}
	return err
}

func receiveOffset(ctx context.Context, setting Setting) error {
	events, err := positions(ctx, setting)
	if err != nil {
		return err
	}
	offset := events[2].Offset
	return errors.Join(
		from(ctx, setting, azeventhubs.StartPosition{Offset: &offset}, 3),
		from(ctx, setting, azeventhubs.StartPosition{Offset: &offset, Inclusive: true}, 2))
}

func receiveSequence(ctx context.Context, setting Setting) error {
	events, err := positions(ctx, setting)
	if err != nil {
		return err
	}
	number := events[2].SequenceNumber
	return errors.Join(
		from(ctx, setting, azeventhubs.StartPosition{SequenceNumber: &number}, 3),
		from(ctx, setting, azeventhubs.StartPosition{SequenceNumber: &number, Inclusive: true}, 2))
}

func receiveTime(ctx context.Context, setting Setting) error {
	events, err := positions(ctx, setting)
	if err != nil {
		return err
	}
	at := events[2].EnqueuedTime
	return errors.Join(
		from(ctx, setting, azeventhubs.StartPosition{EnqueuedTime: at}, 3),
		from(ctx, setting, azeventhubs.StartPosition{EnqueuedTime: at, Inclusive: true}, 2))
}

func contentRoundTrip(ctx context.Context, setting Setting) error {
	properties := map[string]any{
		"text": "na\u00efve \u2603", "yes": true, "int": int32(-42), "long": int64(1) << 40, "ulong": uint64(1) << 63, "short": int16(-7),
		"ubyte": uint8(200), "double": 0.25, "float": float32(1.5), "bytes": []byte{0, 255}, "when": time.UnixMilli(1_700_000_000_123),
	}
	producer, err := newProducer(setting, "content")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	rich := &azeventhubs.EventData{
		Body: []byte{0, 1, 255}, Properties: properties, MessageID: to.Ptr("m-1"), CorrelationID: "c-1",
		ContentType: to.Ptr("application/octet-stream"),
	}
	if err := send(ctx, producer, target{partition: "0"}, rich, event("second")); err != nil {
		return err
	}
	events, err := setting.reading("content", "0").read(ctx, 2)
	if err != nil {
		return err
	}
	first := events[0]
	if when, ok := first.Properties["when"].(time.Time); ok {
		first.Properties["when"] = when.Local() // the same moment, in the form of the one that was sent
	}
	offsets := [2]int{}
	for n := range offsets {
		offsets[n], err = strconv.Atoi(events[n].Offset)
		if err != nil {
			return err
		}
	}
	if offsets[0] >= offsets[1] || time.Since(*first.EnqueuedTime).Abs() > 5*time.Minute {
		return fmt.Errorf("offsets %v, enqueued %v", offsets, first.EnqueuedTime)
	}
	if err := errors.Join(
		same(first.EventData, *rich), same(first.SequenceNumber, int64(0)), same(events[1].SequenceNumber, int64(1)),
	); err != nil {
		return err
	}

	if err := send(ctx, producer, target{key: "home-42"}, event("with a key")); err != nil {
		return err
	}
	one, other := setting.reading("content", "0").open(ctx), setting.reading("content", "1").open(ctx)
	defer one.close()
	defer other.close()
	found := until(20, func() bool {
		return slices.ContainsFunc(append(one.seen(), other.seen()...), func(event *azeventhubs.ReceivedEventData) bool {
			return event.PartitionKey != nil && *event.PartitionKey == "home-42"
		})
	})
	return same(found, true)
}

// ---- owners and limits -------------------------------------------------------------------------------------------

func epochEviction(ctx context.Context, setting Setting) error {
	if err := sendTo(ctx, setting, "epochs", target{partition: "0"}, event("first")); err != nil {
		return err
	}
	open := func(level *int64, retry azeventhubs.RetryOptions) *reader {
		how := setting.reading("epochs", "0")
		how.ownerLevel, how.retry = level, retry
		return how.open(ctx)
	}
	low := open(to.Ptr(int64(1)), azeventhubs.RetryOptions{})
	defer low.close()
	if _, err := low.take(1); err != nil {
		return err
	}
	high := open(to.Ptr(int64(2)), azeventhubs.RetryOptions{})
	defer high.close()
	if _, err := high.take(1); err != nil {
		return err
	}
	if err := ownershipLost(low.failure()); err != nil {
		return err
	}
	lower, plain := open(to.Ptr(int64(1)), once), open(nil, once)
	defer lower.close()
	defer plain.close()
	// Lost ownership is what the SDK makes of a link that is detached later. One that is refused has no code of its own, as with the service.
	refused := saying(lower.failure(), "with a higher epoch '2' already exists")
	if err := errors.Join(refused, saying(plain.failure(), "non-epoch receiver is not allowed")); err != nil {
		return err
	}
	if err := sendTo(ctx, setting, "epochs", target{partition: "0"}, event("on")); err != nil {
		return err
	}
	_, err := high.take(2)
	return err
}

func ownershipLost(err error) error {
	var typed *azeventhubs.Error
	if !errors.As(err, &typed) || typed.Code != azeventhubs.ErrorCodeOwnershipLost {
		return fmt.Errorf("another error than lost ownership: %w", err)
	}
	return nil
}

func sixthReader(ctx context.Context, setting Setting) error {
	if err := sendTo(ctx, setting, "readers", target{partition: "0"}, event("first")); err != nil {
		return err
	}
	five := make([]*reader, 5)
	for n := range five {
		five[n] = setting.reading("readers", "0").open(ctx)
		defer five[n].close()
	}
	for _, reader := range five {
		if _, err := reader.take(1); err != nil {
			return err
		}
	}
	how := setting.reading("readers", "0")
	how.retry = once
	sixth := how.open(ctx)
	defer sixth.close()
	if err := saying(sixth.failure(), "Exceeded the maximum number of allowed receivers"); err != nil {
		return err
	}
	five[0].close()
	_, err := setting.reading("readers", "0").read(ctx, 1)
	return err
}

// ---- errors ------------------------------------------------------------------------------------------------------

func unknownHub(ctx context.Context, setting Setting) error {
	options := &azeventhubs.ProducerClientOptions{RetryOptions: once}
	producer, err := azeventhubs.NewProducerClientFromConnectionString(setting.ConnectionString, "no-such-hub", options)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	_, err = producer.GetEventHubProperties(ctx, nil)
	if err := saying(err, "could not be found"); err != nil {
		return err
	}
	if err := saying(send(ctx, producer, target{}, event("x")), "could not be found"); err != nil {
		return err
	}
	how := setting.reading("no-such-hub", "0")
	how.retry = once
	reader := how.open(ctx)
	defer reader.close()
	return saying(reader.failure(), "could not be found")
}

// sendWith sends with another connection string.
func sendWith(ctx context.Context, connectionString, hub string) error {
	options := &azeventhubs.ProducerClientOptions{RetryOptions: once}
	producer, err := azeventhubs.NewProducerClientFromConnectionString(connectionString, hub, options)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	return send(ctx, producer, target{}, event("x"))
}

func unauthorized(err error) error {
	var typed *azeventhubs.Error
	if !errors.As(err, &typed) || typed.Code != azeventhubs.ErrorCodeUnauthorizedAccess {
		return fmt.Errorf("another error than unauthorized access: %w", err)
	}
	return nil
}

func badKey(ctx context.Context, setting Setting) error {
	return unauthorized(sendWith(ctx, setting.BadKey, "tokens"))
}

func withToken(validSeconds int) string {
	say(map[string]any{"ask": "token", "hub": "tokens", "valid_seconds": validSeconds})
	text, _ := told()["connection_string"].(string)
	return text
}

func expiredToken(ctx context.Context, setting Setting) error {
	if err := sendWith(ctx, withToken(600), "tokens"); err != nil {
		return fmt.Errorf("with a valid token: %w", err)
	}
	return unauthorized(sendWith(ctx, withToken(-60), "tokens"))
}

func tokenExpires(ctx context.Context, setting Setting) error {
	if err := sendTo(ctx, setting, "tokens", target{partition: "0"}, event("first")); err != nil {
		return err
	}
	how := setting.reading("tokens", "0")
	how.connectionString, how.retry = withToken(4), once
	reader := how.open(ctx)
	defer reader.close()
	if _, err := reader.take(1); err != nil {
		return err
	}
	if reader.failure() == nil {
		return errors.New("it reads on after its token has expired")
	}
	return nil
}

func ownRules(ctx context.Context, setting Setting) error {
	sensors, apps := setting.Rules["send"], setting.Rules["listen"]
	if err := sendWith(ctx, sensors, "rules"); err != nil {
		return err
	}
	how := setting.reading("rules", "0")
	how.connectionString = apps
	events, err := how.read(ctx, 1)
	if err := errors.Join(err, same(bodies(events), []string{"x"})); err != nil {
		return err
	}
	if err := unauthorized(sendWith(ctx, apps, "rules")); err != nil {
		return err
	}
	how.connectionString, how.retry = sensors, once
	reader := how.open(ctx)
	defer reader.close()
	if err := unauthorized(reader.failure()); err != nil {
		return err
	}
	return unauthorized(sendWith(ctx, sensors, "single")) // the rule is for one hub
}

func eventTooLarge(ctx context.Context, setting Setting) error {
	producer, err := newProducer(setting, "large")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	err = send(ctx, producer, target{}, &azeventhubs.EventData{Body: make([]byte, 1_100_000)})
	if !errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
		return fmt.Errorf("another error than too large: %w", err)
	}
	if err := send(ctx, producer, target{}, event("small")); err != nil {
		return err
	}
	events, err := setting.reading("large", "0").read(ctx, 1)
	return errors.Join(err, same(bodies(events), []string{"small"}))
}

// ---- transports --------------------------------------------------------------------------------------------------

func overTLS(ctx context.Context, setting Setting) error {
	// The certificate authority is trusted by SSL_CERT_FILE in the environment.
	options := &azeventhubs.ProducerClientOptions{RetryOptions: once, CustomEndpoint: setting.TLSAuthority}
	// With a port in it, the SDK would expect a certificate for "localhost:PORT".
	connectionString := strings.Replace(setting.TLSConnectionString, setting.TLSAuthority, "localhost", 1)
	producer, err := azeventhubs.NewProducerClientFromConnectionString(connectionString, "tls", options)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	if err := send(ctx, producer, target{}, event("over tls")); err != nil {
		return err
	}
	how := setting.reading("tls", "0")
	how.connectionString, how.endpoint = connectionString, setting.TLSAuthority
	events, err := how.read(ctx, 1)
	return errors.Join(err, same(bodies(events), []string{"over tls"}))
}

// dialWebSocket opens a WebSocket without TLS, as to an emulator. The SDK leaves dialling to its user.
func dialWebSocket(ctx context.Context, params azeventhubs.WebSocketConnParams) (net.Conn, error) {
	url := strings.Replace(params.Host, "wss://", "ws://", 1)
	connection, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
	if err != nil {
		return nil, err
	}
	connection.SetReadLimit(-1)
	return websocket.NetConn(context.Background(), connection, websocket.MessageBinary), nil
}

func overWebSocket(ctx context.Context, setting Setting) error {
	options := &azeventhubs.ProducerClientOptions{RetryOptions: once, NewWebSocketConn: dialWebSocket}
	producer, err := azeventhubs.NewProducerClientFromConnectionString(setting.ConnectionString, "websocket", options)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	if err := send(ctx, producer, target{}, event("over a websocket")); err != nil {
		return err
	}
	how := setting.reading("websocket", "0")
	how.webSocket = true
	events, err := how.read(ctx, 1)
	return errors.Join(err, same(bodies(events), []string{"over a websocket"}))
}

// ---- a restart ---------------------------------------------------------------------------------------------------

func hubRestart(ctx context.Context, setting Setting) error {
	reader := setting.reading("restart", "0").open(ctx)
	defer reader.close()
	producer, err := newProducer(setting, "restart")
	if err != nil {
		return err
	}
	defer producer.Close(context.Background())
	acknowledged := map[string]bool{}
	restarted := make(chan map[string]any, 2)
	for n := range 60 {
		for range 5 {
			if err = send(ctx, producer, target{partition: "0"}, event(strconv.Itoa(n))); err == nil {
				acknowledged[strconv.Itoa(n)] = true
				break
			}
			time.Sleep(500 * time.Millisecond) // not acknowledged: send it again, as a user would
		}
		if n == 20 || n == 40 {
			say(map[string]any{"ask": "restart", "how": map[int]string{20: "term", 40: "kill"}[n]})
			go func() { restarted <- told() }()
		}
		time.Sleep(20 * time.Millisecond)
	}
	<-restarted
	<-restarted
	missing := func() map[string]bool {
		missing := maps.Clone(acknowledged)
		for _, body := range bodies(reader.seen()) {
			delete(missing, body)
		}
		return missing
	}
	if !until(45, func() bool { return len(missing()) == 0 }) {
		return fmt.Errorf("missing %v, error: %w", missing(), reader.err())
	}
	return same(len(acknowledged), 60)
}
