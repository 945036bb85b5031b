package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func admin(r *request) (*kadm.Client, error) {
	lock.Lock()
	defer lock.Unlock()
	if made := admins[r.Address]; made != nil {
		return made, nil
	}
	client, err := kgo.NewClient(options(r)...)
	if err != nil {
		return nil, err
	}
	admins[r.Address] = kadm.NewClient(client)
	return admins[r.Address], nil
}

func administer(ctx context.Context, r *request) (any, error) {
	client, err := admin(r)
	if err != nil {
		return nil, err
	}
	switch r.Do {
	case "topics", "partitions", "create", "delete", "grow", "delete_records":
		return topics(ctx, client, r)
	case "groups", "describe_group", "group_offsets", "delete_group", "alter_group_offsets",
		"delete_group_offsets":
		return groups(ctx, client, r)
	case "configs":
		return configs(ctx, client, r)
	case "alter":
		return nil, alter(ctx, client, r)
	case "offsets", "newest", "epoch_end":
		return offsets(ctx, client, r)
	case "cluster":
		return cluster(ctx, client)
	case "log_dirs":
		return logDirs(ctx, client, r)
	case "quotas", "set_quota":
		return quotas(ctx, client, r)
	case "producers", "transactions", "describe_transaction":
		return states(ctx, client, r)
	case "elect", "reassign", "reassignments":
		return replicas(ctx, client, r)
	}
	return nil, fmt.Errorf("unknown verb %s", r.Do)
}

func topics(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	switch r.Do {
	case "topics":
		found, err := client.ListTopics(ctx)
		return found.Names(), err
	case "partitions":
		found, err := client.ListTopics(ctx, r.Topic)
		if err == nil {
			err = found[r.Topic].Err
		}
		return len(found[r.Topic].Partitions), err
	case "create":
		_, err := client.CreateTopic(ctx, r.Partitions, 1, r.Configs, r.Topic)
		return nil, err
	case "delete":
		_, err := client.DeleteTopic(ctx, r.Topic)
		return nil, err
	case "grow":
		grown, err := client.UpdatePartitions(ctx, int(r.Partitions), r.Topic)
		if err == nil {
			err = grown.Error()
		}
		return nil, err
	}
	before := kadm.Offsets{}
	for partition, offset := range r.Before {
		before.AddOffset(r.Topic, partition, offset, -1)
	}
	deleted, err := client.DeleteRecords(ctx, before)
	if err == nil {
		err = deleted.Error()
	}
	low := map[int32]int64{}
	deleted.Each(func(each kadm.DeleteRecordsResponse) { low[each.Partition] = each.LowWatermark })
	return low, err
}

func groups(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	switch r.Do {
	case "groups":
		listed, err := client.ListGroups(ctx)
		found := map[string]string{}
		for name, each := range listed {
			found[name] = each.State
		}
		return found, err
	case "describe_group":
		return describeGroup(ctx, client, r.Group)
	case "group_offsets":
		told, err := client.FetchOffsets(ctx, r.Group)
		found := map[string]map[int32]int64{}
		told.Each(func(each kadm.OffsetResponse) {
			if found[each.Topic] == nil {
				found[each.Topic] = map[int32]int64{}
			}
			found[each.Topic][each.Partition] = each.At
		})
		return found, err
	case "delete_group":
		_, err := client.DeleteGroup(ctx, r.Group)
		return nil, err
	case "alter_group_offsets":
		offsets := kadm.Offsets{}
		for partition, offset := range r.Offsets {
			offsets.AddOffset(r.Topic, partition, offset, -1)
		}
		return nil, client.CommitAllOffsets(ctx, r.Group, offsets)
	}
	set := kadm.TopicsSet{}
	set.Add(r.Topic, r.Partition)
	gone, err := client.DeleteOffsets(ctx, r.Group, set)
	if err == nil {
		err = gone.Error()
	}
	return nil, err
}

func describeGroup(ctx context.Context, client *kadm.Client, name string) (any, error) {
	told, err := client.DescribeGroups(ctx, name)
	if err == nil {
		err = told[name].Err
	}
	if err != nil {
		return nil, err
	}
	group := told[name]
	members := []any{}
	for _, each := range group.Members {
		partitions := [][]any{}
		if assigned, ok := each.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				for _, partition := range topic.Partitions {
					partitions = append(partitions, []any{topic.Topic, partition})
				}
			}
		}
		members = append(members, map[string]any{
			"id": each.MemberID, "client": each.ClientID, "host": each.ClientHost, "partitions": partitions,
		})
	}
	return map[string]any{
		"state": group.State, "protocol": group.Protocol, "members": members,
	}, nil
}

func configs(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	var told kadm.ResourceConfigs
	var err error
	if r.Resource == "topic" {
		told, err = client.DescribeTopicConfigs(ctx, r.Name)
	} else {
		node, _ := strconv.Atoi(r.Name)
		told, err = client.DescribeBrokerConfigs(ctx, int32(node))
	}
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	for _, resource := range told {
		if resource.Err != nil {
			return nil, resource.Err
		}
		for _, each := range resource.Configs {
			found[each.Key] = map[string]any{
				"value": each.Value, "sensitive": each.Sensitive,
				"default": each.Source == kmsg.ConfigSourceDefaultConfig,
			}
		}
	}
	return found, nil
}

func alter(ctx context.Context, client *kadm.Client, r *request) error {
	var changes []kadm.AlterConfig
	for name, value := range r.Values {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	for _, name := range r.Without {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	var told kadm.AlterConfigsResponses
	var err error
	if r.Resource == "topic" {
		told, err = client.AlterTopicConfigs(ctx, changes, r.Name)
	} else {
		node, _ := strconv.Atoi(r.Name)
		told, err = client.AlterBrokerConfigs(ctx, changes, int32(node))
	}
	for _, each := range told {
		if err == nil {
			err = each.Err
		}
	}
	return err
}

func offsets(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	if r.Do == "epoch_end" {
		leaders, err := client.Metadata(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		asked := kadm.OffsetForLeaderEpochRequest{}
		asked.Add(r.Topic, r.Partition, leaders.Topics[r.Topic].Partitions[r.Partition].LeaderEpoch)
		told, err := client.OffsetForLeaderEpoch(ctx, asked)
		if err == nil {
			err = told[r.Topic][r.Partition].Err
		}
		return told[r.Topic][r.Partition].EndOffset, err
	}
	var told kadm.ListedOffsets
	var err error
	switch {
	case r.Do == "newest":
		told, err = client.ListMaxTimestampOffsets(ctx, r.Topic)
	case r.At == "earliest":
		told, err = client.ListStartOffsets(ctx, r.Topic)
	case r.At == "latest":
		told, err = client.ListEndOffsets(ctx, r.Topic)
	default:
		// It asks for the end where there is nothing so new, which it does not tell apart.
		ms, _ := strconv.ParseInt(r.At, 10, 64)
		told, err = client.ListOffsetsAfterMilli(ctx, ms, r.Topic)
	}
	if err == nil {
		err = told.Error()
	}
	if r.Do == "newest" {
		return told[r.Topic][r.Partition].Offset, err
	}
	found := map[int32]int64{}
	told.Each(func(each kadm.ListedOffset) { found[each.Partition] = each.Offset })
	return found, err
}

func cluster(ctx context.Context, client *kadm.Client) (any, error) {
	told, err := client.BrokerMetadata(ctx)
	nodes := [][]any{}
	for _, each := range told.Brokers {
		nodes = append(nodes, []any{each.NodeID, each.Host, each.Port})
	}
	return map[string]any{"id": told.Cluster, "controller": told.Controller, "nodes": nodes}, err
}

func logDirs(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	told, err := client.DescribeBrokerLogDirs(ctx, r.Node, nil)
	if err == nil {
		err = told.Error()
	}
	found := map[string]map[string]int64{}
	told.Each(func(directory kadm.DescribedLogDir) {
		sizes := map[string]int64{}
		directory.Topics.Each(func(each kadm.DescribedLogDirPartition) {
			sizes[fmt.Sprintf("%s-%d", each.Topic, each.Partition)] = each.Size
		})
		found[directory.Dir] = sizes
	})
	return found, err
}

func quotas(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	if r.Do == "set_quota" {
		change := kadm.AlterClientQuotaOp{Key: r.Key, Remove: r.Value == nil}
		if r.Value != nil {
			change.Value = *r.Value
		}
		entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &r.Client}}
		changes := []kadm.AlterClientQuotaEntry{{
			Entity: entity, Ops: []kadm.AlterClientQuotaOp{change},
		}}
		told, err := client.AlterClientQuotas(ctx, changes)
		for _, each := range told {
			if err == nil {
				err = each.Err
			}
		}
		return nil, err
	}
	told, err := client.DescribeClientQuotas(ctx, false, nil)
	found := map[string]map[string]float64{}
	for _, each := range told {
		values := map[string]float64{}
		for _, value := range each.Values {
			values[value.Key] = value.Value
		}
		for _, part := range each.Entity {
			if part.Type == "client-id" && part.Name != nil {
				found[*part.Name] = values
			}
		}
	}
	return found, err
}

func states(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	if r.Do == "producers" {
		set := kadm.TopicsSet{}
		set.Add(r.Topic, r.Partition)
		told, err := client.DescribeProducers(ctx, set)
		found := []any{}
		told.EachProducer(func(each kadm.DescribedProducer) {
			found = append(found, map[string]any{
				"id": each.ProducerID, "epoch": each.ProducerEpoch,
				"sequence": each.LastSequence, "open_from": each.CurrentTxnStartOffset,
			})
		})
		return found, err
	}
	if r.Do == "describe_transaction" {
		told, err := client.DescribeTransactions(ctx, r.Transaction)
		if err == nil {
			err = told[r.Transaction].Err
		}
		return told[r.Transaction].State, err
	}
	told, err := client.ListTransactions(ctx, nil, nil)
	found := map[string]string{}
	for name, each := range told {
		found[name] = each.State
	}
	return found, err
}

func replicas(ctx context.Context, client *kadm.Client, r *request) (any, error) {
	set := kadm.TopicsSet{}
	set.Add(r.Topic, r.Partition)
	switch r.Do {
	case "elect":
		told, err := client.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		if err == nil {
			err = told[r.Topic][r.Partition].Err
		}
		return nil, err
	case "reassign":
		asked := kadm.AlterPartitionAssignmentsReq{}
		asked.Assign(r.Topic, r.Partition, r.Nodes)
		told, err := client.AlterPartitionAssignments(ctx, asked)
		if err == nil {
			err = told.Error()
		}
		return nil, err
	}
	told, err := client.ListPartitionReassignments(ctx, nil)
	found := map[string][]int32{}
	told.Each(func(each kadm.ListPartitionReassignmentsResponse) {
		found[fmt.Sprintf("%s-%d", each.Topic, each.Partition)] = each.Replicas
	})
	return found, err
}
