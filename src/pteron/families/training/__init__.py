"""Operators of training: a loss, gradients of linear layers, optimiser steps, 4-bit requantisation."""

from pteron.families.training import adamw, cross_entropy, gradients
