package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kferry/cmd/internal/config"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Prints configurations",
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	cmd.AddCommand(configPrintCommand(), configExampleCommand())
	return cmd
}

func configPrintCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "print -c FILE",
		Short: "Prints the effective configuration: all defaults, no secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(file)
			if err != nil {
				return err
			}
			print := config.Print
			if asJSON {
				print = config.PrintJSON
			}
			out, err := print(cfg)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), out)
			return err
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func configExampleCommand() *cobra.Command {
	names := strings.Join(config.Examples(), ", ")
	return &cobra.Command{
		Use:       "example NAME",
		Short:     "Prints a commented file: " + names,
		ValidArgs: config.Examples(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("which example? Name one of " + names)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := config.Example(args[0])
			if err != nil {
				return exit(exitRefused, err)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
}
