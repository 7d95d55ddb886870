"""The nouns: ops, schedule, builder, costs, timeline, lowered queues, execution, draft, curve."""
