package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/IBM/sarama"
)

// What an administrator asks, and what it asks a node itself, which it has no words of its own for.
type administrator struct {
	sarama.ClusterAdmin
	client sarama.Client
}

// Those who look at producers and transactions, which its interface has not yet.
type states interface {
	DescribeProducers(map[string][]int32) (
		map[string]map[int32]sarama.DescribeProducersResponsePartition, error,
	)
	DescribeTransactions([]string) (map[string]sarama.TransactionState, error)
	ListTransactions([]string, []int64, int64) (
		[]sarama.ListTransactionsResponseTransactionState, error,
	)
}

func admin(r *request) (*administrator, error) {
	lock.Lock()
	defer lock.Unlock()
	if made := admins[r.Address]; made != nil {
		return made, nil
	}
	settings, err := config(r)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient([]string{r.Address}, settings)
	if err != nil {
		return nil, err
	}
	made, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	admins[r.Address] = &administrator{made, client}
	return admins[r.Address], nil
}

func administer(r *request) (any, error) {
	of, err := admin(r)
	if err != nil {
		return nil, err
	}
	switch r.Do {
	case "topics", "partitions", "create", "delete", "grow":
		return of.topics(r)
	case "configs":
		return of.configs(r)
	case "alter":
		return nil, of.alter(r)
	case "offsets", "delete_records":
		return of.offsets(r)
	case "cluster":
		return of.cluster()
	case "log_dirs":
		return of.logDirs(r)
	case "groups", "describe_group", "group_offsets", "delete_group", "alter_group_offsets",
		"delete_group_offsets":
		return of.groups(r)
	case "quotas", "set_quota":
		return of.quotas(r)
	case "scram_users", "set_scram", "delete_scram":
		return of.scram(r)
	case "elect", "reassign", "reassignments":
		return of.replicas(r)
	case "producers", "transactions", "describe_transaction":
		return of.states(r)
	}
	return nil, fmt.Errorf("unknown verb %s", r.Do)
}

func (a *administrator) topics(r *request) (any, error) {
	switch r.Do {
	case "topics":
		found, err := a.ListTopics()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		return names, err
	case "partitions":
		found, err := a.DescribeTopics([]string{r.Topic})
		if err != nil {
			return nil, err
		}
		if found[0].Err != sarama.ErrNoError {
			return nil, found[0].Err
		}
		return len(found[0].Partitions), nil
	case "create":
		detail := &sarama.TopicDetail{
			NumPartitions: r.Partitions, ReplicationFactor: 1, ConfigEntries: r.Configs,
		}
		return nil, a.CreateTopic(r.Topic, detail, false)
	case "grow":
		return nil, a.CreatePartitions(r.Topic, r.Partitions, nil, false)
	}
	return nil, a.DeleteTopic(r.Topic)
}

func kind(r *request) sarama.ConfigResourceType {
	if r.Resource == "topic" {
		return sarama.TopicResource
	}
	return sarama.BrokerResource
}

func (a *administrator) configs(r *request) (any, error) {
	told, err := a.DescribeConfig(sarama.ConfigResource{Type: kind(r), Name: r.Name})
	found := map[string]any{}
	for _, each := range told {
		found[each.Name] = map[string]any{
			"value": each.Value, "read_only": each.ReadOnly, "sensitive": each.Sensitive,
			"default": each.Default,
		}
	}
	return found, err
}

func (a *administrator) alter(r *request) error {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range r.Values {
		changes[name] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value,
		}
	}
	for _, name := range r.Without {
		changes[name] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationDelete,
		}
	}
	return a.IncrementalAlterConfig(kind(r), r.Name, changes, false)
}

// --- records ----------------------------------------------------------------------------------

func (a *administrator) at(topic string, when int64) (map[int32]int64, error) {
	partitions, err := a.client.Partitions(topic)
	if err != nil {
		return nil, err
	}
	if !a.client.Config().Version.IsAtLeast(sarama.V0_10_1_0) { // its ListOffsets takes no list
		found := map[int32]int64{}
		for _, each := range partitions {
			if found[each], err = a.client.GetOffset(topic, each, when); err != nil {
				return nil, err
			}
		}
		return found, nil
	}
	asked := map[int32]int64{}
	for _, each := range partitions {
		asked[each] = when
	}
	told, err := a.ListOffsets(map[string]map[int32]int64{topic: asked}, nil)
	found := map[int32]int64{}
	for partition, each := range told[topic] {
		if err == nil && !errors.Is(each.Err, sarama.ErrNoError) {
			err = each.Err
		}
		found[partition] = each.Offset
	}
	return found, err
}

func (a *administrator) offsets(r *request) (any, error) {
	switch {
	case r.Do == "delete_records":
		if err := a.DeleteRecords(r.Topic, r.Before); err != nil {
			return nil, err
		}
		return a.at(r.Topic, sarama.OffsetOldest) // it does not tell what is left
	case r.At == "earliest":
		return a.at(r.Topic, sarama.OffsetOldest)
	case r.At == "latest":
		return a.at(r.Topic, sarama.OffsetNewest)
	}
	ms, err := strconv.ParseInt(r.At, 10, 64)
	if err != nil {
		return nil, err
	}
	return a.at(r.Topic, ms)
}

// --- nodes ------------------------------------------------------------------------------------

func (a *administrator) cluster() (any, error) {
	brokers, controller, err := a.DescribeCluster()
	if err != nil {
		return nil, err
	}
	nodes := [][]any{}
	for _, each := range brokers {
		host, port, err := net.SplitHostPort(each.Addr())
		if err != nil {
			return nil, err
		}
		number, _ := strconv.Atoi(port)
		nodes = append(nodes, []any{each.ID(), host, number})
	}
	node, err := a.Controller()
	if err != nil {
		return nil, err
	}
	told, err := node.GetMetadata(sarama.NewMetadataRequest(sarama.MaxVersion, []string{}))
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": told.ClusterID, "controller": controller, "nodes": nodes}, nil
}

func (a *administrator) logDirs(r *request) (any, error) {
	told, err := a.DescribeLogDirs([]int32{r.Node})
	found := map[string]map[string]int64{}
	for _, directory := range told[r.Node] {
		sizes := map[string]int64{}
		for _, topic := range directory.Topics {
			for _, each := range topic.Partitions {
				sizes[fmt.Sprintf("%s-%d", topic.Topic, each.PartitionID)] = each.Size
			}
		}
		found[directory.Path] = sizes
	}
	return found, err
}

func (a *administrator) replicas(r *request) (any, error) {
	switch r.Do {
	case "elect":
		asked := map[string][]int32{r.Topic: {r.Partition}}
		told, err := a.ElectLeaders(sarama.PreferredElection, asked)
		if err == nil && told[r.Topic][r.Partition].ErrorCode != sarama.ErrNoError {
			return names[told[r.Topic][r.Partition].ErrorCode], nil
		}
		return nil, err
	case "reassign":
		return nil, a.AlterPartitionReassignments(r.Topic, [][]int32{r.Nodes})
	}
	found := map[string][]int32{}
	topics, err := a.ListTopics()
	for topic, detail := range topics { // it has no words for all of them
		partitions := []int32{}
		for each := range detail.NumPartitions {
			partitions = append(partitions, each)
		}
		moving, err := a.ListPartitionReassignments(topic, partitions)
		if err != nil {
			return nil, err
		}
		for partition, each := range moving[topic] {
			found[fmt.Sprintf("%s-%d", topic, partition)] = each.Replicas
		}
	}
	return found, err
}

// --- groups -----------------------------------------------------------------------------------

func (a *administrator) groups(r *request) (any, error) {
	switch r.Do {
	case "groups":
		listed, err := a.ListConsumerGroups()
		found := map[string]any{}
		for name := range listed {
			found[name] = nil
		}
		return found, err
	case "describe_group":
		return a.describeGroup(r.Group)
	case "group_offsets":
		told, err := a.ListConsumerGroupOffsets(r.Group, nil)
		if err != nil {
			return nil, err
		}
		found := map[string]map[int32]int64{}
		for topic, blocks := range told.Blocks {
			found[topic] = map[int32]int64{}
			for partition, each := range blocks {
				found[topic][partition] = each.Offset
			}
		}
		return found, nil
	case "delete_group":
		return nil, a.DeleteConsumerGroup(r.Group)
	case "delete_group_offsets":
		return nil, a.DeleteConsumerGroupOffset(r.Group, r.Topic, r.Partition)
	}
	offsets := map[int32]sarama.OffsetAndMetadata{}
	for partition, offset := range r.Offsets {
		offsets[partition] = sarama.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1}
	}
	told, err := a.AlterConsumerGroupOffsets(
		r.Group, map[string]map[int32]sarama.OffsetAndMetadata{r.Topic: offsets}, nil,
	)
	if err != nil {
		return nil, err
	}
	for _, each := range told.Errors[r.Topic] {
		if each != sarama.ErrNoError {
			return nil, each
		}
	}
	return nil, nil
}

func (a *administrator) describeGroup(name string) (any, error) {
	told, err := a.DescribeConsumerGroups([]string{name})
	if err != nil {
		return nil, err
	}
	if told[0].Err != sarama.ErrNoError {
		return nil, told[0].Err
	}
	members := []any{}
	for id, each := range told[0].Members {
		partitions := [][]any{}
		assigned, err := each.GetMemberAssignment()
		if err != nil {
			return nil, err
		}
		if assigned != nil {
			for topic, those := range assigned.Topics {
				for _, partition := range those {
					partitions = append(partitions, []any{topic, partition})
				}
			}
		}
		members = append(members, map[string]any{
			"id": id, "client": each.ClientId, "host": each.ClientHost, "partitions": partitions,
		})
	}
	return map[string]any{
		"state": told[0].State, "protocol": told[0].Protocol, "members": members,
	}, nil
}

// --- quotas, producers, transactions ------------------------------------------------------------

func (a *administrator) quotas(r *request) (any, error) {
	if r.Do == "set_quota" {
		change := sarama.ClientQuotasOp{Key: r.Key, Remove: r.Value == nil}
		if r.Value != nil {
			change.Value = *r.Value
		}
		entity := []sarama.QuotaEntityComponent{{
			EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: r.Client,
		}}
		return nil, a.AlterClientQuotas(entity, change, false)
	}
	told, err := a.DescribeClientQuotas([]sarama.QuotaFilterComponent{
		{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchAny},
	}, false)
	found := map[string]map[string]float64{}
	for _, each := range told {
		for _, part := range each.Entity {
			if part.EntityType == sarama.QuotaEntityClientID && part.Name != "" {
				found[part.Name] = each.Values
			}
		}
	}
	return found, err
}

// scram lists users with the numbers of their mechanisms: all of them for an empty list.
func (a *administrator) scram(r *request) (any, error) {
	const mechanism = sarama.SCRAM_MECHANISM_SHA_256
	var changed []*sarama.AlterUserScramCredentialsResult
	var err error
	switch r.Do {
	case "set_scram":
		changed, err = a.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
			Name: r.Client, Mechanism: mechanism, Iterations: 4096,
			Salt: []byte(r.Client), Password: []byte("secret"),
		}})
	case "delete_scram":
		changed, err = a.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{{
			Name: r.Client, Mechanism: mechanism,
		}})
	default:
		described, err := a.DescribeUserScramCredentials([]string{})
		found := map[string][]int{}
		for _, user := range described {
			for _, each := range user.CredentialInfos {
				found[user.User] = append(found[user.User], int(each.Mechanism))
			}
		}
		return found, err
	}
	for _, each := range changed {
		if each.ErrorCode != sarama.ErrNoError {
			return nil, each.ErrorCode
		}
	}
	return nil, err
}

func (a *administrator) states(r *request) (any, error) {
	of := a.ClusterAdmin.(states)
	switch r.Do {
	case "producers":
		told, err := of.DescribeProducers(map[string][]int32{r.Topic: {r.Partition}})
		found := []any{}
		for _, each := range told[r.Topic][r.Partition].ActiveProducers {
			found = append(found, map[string]any{
				"id": each.ProducerID, "epoch": each.ProducerEpoch,
				"sequence": each.LastSequence, "open_from": each.CurrentTxnStartOffset,
			})
		}
		return found, err
	case "describe_transaction":
		told, err := of.DescribeTransactions([]string{r.Transaction})
		if err == nil && told[r.Transaction].ErrorCode != sarama.ErrNoError {
			err = told[r.Transaction].ErrorCode
		}
		return told[r.Transaction].TransactionState, err
	}
	told, err := of.ListTransactions(nil, nil, -1)
	found := map[string]string{}
	for _, each := range told {
		found[each.TransactionalID] = each.TransactionState
	}
	return found, err
}
