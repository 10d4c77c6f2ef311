// Package config is what can be set of a node agent: the SvcletConfiguration,
// which is read from files, and the flags.
//
// [Load] makes settings of a command line and of the files that it names. What
// there is to set is one table, [Sections]: flags, help, reference, deprecation
// warnings and the checks of single values come from it. Values come, in this
// order, from a flag, from the drop-in directory, from the file of --config and
// from [Default]; a message about one says which of them it came from.
//
// The schema of files is that of k8s.io/kubelet/config/v1beta1, so that a
// kubelet's file can be used as it is. A field of which svclet does nothing yet
// may only be set to kubelet's default; its flag does not exist.
package config
