package workload

// SetIfNil sets an unset optional field to its default.
func SetIfNil[V any](field **V, value V) {
	if *field == nil {
		*field = &value
	}
}

// SetIfEmpty sets a field that is empty to its default.
func SetIfEmpty[V comparable](field *V, value V) {
	var empty V
	if *field == empty {
		*field = value
	}
}
