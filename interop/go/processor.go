package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// processor runs the SDK's own event processor with its blob checkpoint store until stdin is closed.
func processor(ctx context.Context, setting Setting) error {
	blobs, err := container.NewClientFromConnectionString(setting.Blob.ConnectionString, setting.Blob.Container, nil)
	if err != nil {
		return err
	}
	store, err := checkpoints.NewBlobStore(blobs, nil)
	if err != nil {
		return err
	}
	client, err := azeventhubs.NewConsumerClientFromConnectionString(
		setting.ConnectionString, "processors", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		return err
	}
	processor, err := azeventhubs.NewProcessor(client, store, &azeventhubs.ProcessorOptions{
		LoadBalancingStrategy:       azeventhubs.ProcessorStrategyGreedy,
		UpdateInterval:              time.Duration(setting.IntervalMs) * time.Millisecond,
		PartitionExpirationDuration: time.Duration(setting.ExpiryMs) * time.Millisecond,
		StartPositions:              azeventhubs.StartPositions{Default: azeventhubs.StartPosition{Earliest: to.Ptr(true)}},
	})
	if err != nil {
		return err
	}
	go func() {
		for {
			partition := processor.NextPartitionClient(ctx)
			if partition == nil {
				return
			}
			go pump(ctx, partition)
		}
	}()
	go func() {
		fmt.Fprintln(os.Stderr, "the processor ended:", processor.Run(ctx))
		os.Exit(1)
	}()
	told() // until the harness closes the pipe
	return nil
}

// pump handles a partition's events until somebody else owns it.
func pump(ctx context.Context, partition *azeventhubs.ProcessorPartitionClient) {
	defer partition.Close(ctx)
	for {
		wait, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		events, err := partition.ReceiveEvents(wait, 100, nil)
		late := wait.Err() != nil
		cancel()
		if err != nil && !late {
			fmt.Fprintf(os.Stderr, "partition %s ended: %v\n", partition.PartitionID(), err)
			return
		}
		for _, event := range events {
			number, err := strconv.Atoi(string(event.Body))
			if err != nil {
				panic(err)
			}
			say(map[string]any{"event": []any{partition.PartitionID(), number}})
			if number%10 == 0 {
				if err := partition.UpdateCheckpoint(ctx, event, nil); err != nil {
					fmt.Fprintln(os.Stderr, "no checkpoint:", err)
				}
			}
		}
	}
}

// feeder sends numbered events to every partition until it is told to stop.
func feeder(ctx context.Context, setting Setting) error {
	producer, err := newProducer(setting, "processors")
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	stop := make(chan struct{})
	go func() {
		told()
		close(stop)
	}()
	for number := 0; ; number++ {
		for partition := range setting.Hubs["processors"] {
			id := strconv.Itoa(partition)
			if err := send(ctx, producer, target{partition: id}, event(strconv.Itoa(number))); err != nil {
				return err
			}
			say(map[string]any{"sent": []any{id, number}})
		}
		select {
		case <-stop:
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}
