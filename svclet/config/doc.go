// Package config owns the settings of a node agent: the SvcletConfiguration, which
// is read from files, and the flags.
//
// [Load] returns the settings of a command line and of the files that it names.
// All settings are in one table, [Sections], from which flags, help, reference,
// deprecation warnings and checks of single values are derived. The precedence is:
// flag, drop-in directory, file of --config, [Default]; messages about a value
// name its origin.
//
// The schema of files is that of k8s.io/kubelet/config/v1beta1, so that a
// kubelet's file can be used unchanged. A field without an implementation may only
// have kubelet's default; its flag does not exist.
package config
