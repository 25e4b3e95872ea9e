package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

// writeRich writes one rich event per kind of body.
func writeRich(ctx context.Context, setting Setting) error {
	properties := map[string]any{}
	for name, one := range setting.Properties {
		properties[name] = property(one[0].(string), one[1])
	}
	var data, value string
	var sequence []any
	for kind, into := range map[string]any{"data": &data, "value": &value, "sequence": &sequence} {
		if err := json.Unmarshal(setting.Bodies[kind], into); err != nil {
			return err
		}
	}
	for n, one := range sequence {
		if number, ok := one.(float64); ok {
			sequence[n] = int64(number)
		}
	}
	binary, err := hex.DecodeString(data)
	if err != nil {
		return err
	}
	producer, err := newProducer(setting, "rich")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: &setting.Partition})
	if err != nil {
		return err
	}
	for _, one := range []struct {
		kind string
		body azeventhubs.AMQPAnnotatedMessageBody
	}{
		{"data", azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{binary}}},
		{"value", azeventhubs.AMQPAnnotatedMessageBody{Value: value}},
		{"sequence", azeventhubs.AMQPAnnotatedMessageBody{Sequence: [][]any{sequence}}},
	} {
		if err := batch.AddAMQPAnnotatedMessage(&azeventhubs.AMQPAnnotatedMessage{
			Body:                  one.body,
			ApplicationProperties: properties,
			Properties: &azeventhubs.AMQPAnnotatedMessageProperties{
				MessageID: setting.Writer + "-" + one.kind, CorrelationID: "correlated", ContentType: to.Ptr("application/json"),
			},
		}, nil); err != nil {
			return err
		}
	}
	if err := producer.SendEventDataBatch(ctx, batch, nil); err != nil {
		return err
	}
	say(map[string]any{"bodies": []string{"data", "value", "sequence"}})
	return nil
}

func property(kind string, value any) any {
	switch kind {
	case "int":
		return int32(value.(float64))
	case "long":
		return int64(value.(float64))
	case "float":
		return float32(value.(float64))
	case "timestamp":
		return time.UnixMilli(int64(value.(float64)))
	case "uuid":
		var id amqp.UUID
		binary, _ := hex.DecodeString(strings.ReplaceAll(value.(string), "-", ""))
		copy(id[:], binary)
		return id
	case "binary":
		binary, _ := hex.DecodeString(value.(string))
		return binary
	default:
		return value
	}
}

// readRich reads the rich events of all SDKs.
func readRich(ctx context.Context, setting Setting) error {
	events := map[string][]any{}
	for partition, count := range setting.Expected {
		found, err := setting.reading("rich", partition).read(ctx, count)
		if err != nil {
			return err
		}
		for _, event := range found {
			events[partition] = append(events[partition], plain(event))
		}
	}
	say(map[string]any{"events": events})
	return nil
}

func plain(event *azeventhubs.ReceivedEventData) map[string]any {
	body := event.RawAMQPMessage.Body
	kind, value := "data", any(hex.EncodeToString(bytes.Join(body.Data, nil)))
	if body.Value != nil {
		kind, value = "value", body.Value
	} else if body.Sequence != nil {
		flat := []any{}
		for _, part := range body.Sequence {
			flat = append(flat, part...)
		}
		kind, value = "sequence", flat
	}
	properties := map[string]any{}
	for name, value := range event.Properties {
		properties[name] = canonical(value)
	}
	return map[string]any{
		"kind": kind, "message_id": event.MessageID, "correlation_id": event.CorrelationID, "content_type": event.ContentType,
		"properties": properties, "body": value,
	}
}

func canonical(value any) any {
	switch value := value.(type) {
	case []byte:
		return hex.EncodeToString(value)
	case time.Time:
		return value.UnixMilli()
	case amqp.UUID:
		return fmt.Sprintf("%x-%x-%x-%x-%x", value[0:4], value[4:6], value[6:8], value[8:10], value[10:16])
	default:
		return value
	}
}
